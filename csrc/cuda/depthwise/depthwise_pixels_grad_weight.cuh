// NHWC grad_weight.
#pragma once

#include "cuda/depthwise/depthwise_pixels.cuh"

namespace convt2d::cuda::depthwise::pixels {

struct GradWeightParams {
  Geometry g;
  PixelGradWeightTile t;
  float* bias_parts;  // [split * class_groups][C_out] or null
};

// acc[tap] += y[m] * x[m - tap] over a run of pixels. With kEdge, products whose y or x pixel lies
// outside are left out.
template <typename T, int kVector, int kTaps, bool kEdge>
__device__ __forceinline__ void correlate_pixels(const Pack<T, kVector> (&y)[kPixels],
                                                 const Pack<T, kVector> (&x)[kPixels + kTaps - 1],
                                                 unsigned y_pixels, unsigned x_pixels,
                                                 float (&acc)[kTaps][kVector]) {
#pragma unroll
  for (int tap = 0; tap < kTaps; ++tap) {
#pragma unroll
    for (int m = 0; m < kPixels; ++m) {
      const int u = m + kTaps - 1 - tap;
      if (kEdge && !((y_pixels >> m) & (x_pixels >> u) & 1)) continue;
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        acc[tap][i] =
            fmaf(Numeric<T>::widen(x[u].value[i]), Numeric<T>::widen(y[m].value[i]), acc[tap][i]);
      }
    }
  }
}

// Bit i: first + i * step lies in [0, extent).
template <int kCount>
__device__ __forceinline__ unsigned pixels_inside(int first, int step, int extent) {
  unsigned mask = 0;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    mask |= unsigned(unsigned(first + i * step) < unsigned(extent)) << i;
  }
  return mask;
}

// A thread keeps one class (row phase, column phase, tap block) of `vector` channels, and its taps stay
// in registers while it walks its share of the block's rows; then the block adds up the threads of a
// class in a fixed order. Reads y once, x once a class, both through the cache; writes partial sums.
template <typename T, int kVector, int kTaps>
__global__ void __launch_bounds__(kThreads, 2)
    convt2d_depthwise_grad_weight_kernel(const __grid_constant__ GradWeightParams p) {
  const Geometry& g = p.g;
  const PixelGradWeightTile& t = p.t;
  extern __shared__ float4 shared[];
  float* sums = reinterpret_cast<float*>(shared);  // [value][thread]
  constexpr int kValues = kTaps * kTaps * kVector;

  int64_t block = blockIdx.x;
  const int piece = t.by_split.split(block);
  const int group = t.by_class_groups.split(block);
  const int first_channel = int(block) * t.channels;

  const int slot = t.by_lanes.quotient(threadIdx.x), lane = threadIdx.x - slot * t.lanes;
  const int item_slot = t.by_class_slots.quotient(slot);
  const int index = group * t.class_slots + slot - item_slot * t.class_slots;
  const int channel = first_channel + lane * kVector;
  const bool active = item_slot < t.item_slots && index < t.classes && channel < g.out_channels;
  int64_t rest = index;
  const int phase_v = t.by_phases_v.split(rest);
  const int phase_h = t.by_phases_h.split(rest);
  const int block_v = t.by_tap_blocks_v.split(rest);
  const int block_h = int(rest);
  const Phase columns = g.v.phases[phase_v], rows = g.h.phases[phase_h];
  const int x_channel = kVector == 1 ? int(g.by_multiplier.quotient(channel)) : channel;
  const bool wants_bias = p.bias_parts != nullptr && block_h == 0 && block_v == 0;
  const bool has_taps = columns.taps > block_v * kTaps && rows.taps > block_h * kTaps;

  float acc[kTaps][kTaps][kVector] = {};
  float bias[kVector] = {};
  const int first_unit = piece * t.units_a_block;
  const int units = min(t.units_a_block, t.units - first_unit);
  const int items = active && (has_taps || wants_bias) ? units * t.row_runs : 0;
  for (int item = item_slot; item < items; item += t.item_slots) {
    const int unit = t.by_row_runs.quotient(item), row_run = item - unit * t.row_runs;
    int64_t n = first_unit + unit;
    const int q = t.by_rows.split(n);
    const int residue = t.by_runs.quotient(row_run), run = row_run - residue * t.runs;
    const int oy = phase_h + q * g.h.stride;
    const int start =
        residue + run * kPixels * g.v.reach;  // the first output is phase + stride * start
    const int column0 = phase_v + start * g.v.stride;
    if (oy >= g.h.out || column0 >= g.v.out) continue;

    const T* y_row = static_cast<const T*>(g.y) +
                     n * (int64_t{g.h.out} * g.v.out * g.out_channels) +
                     oy * g.v.out * g.out_channels + channel;
    Pack<T, kVector> y[kPixels];
#pragma unroll
    for (int m = 0; m < kPixels; ++m) {
      const int ox = column0 + m * g.v.period;
      y[m] = load_pack<T, kVector>(y_row + ox * g.out_channels, ox < g.v.out);
    }
    if (wants_bias) {
#pragma unroll
      for (int m = 0; m < kPixels; ++m) {
#pragma unroll
        for (int i = 0; i < kVector; ++i) bias[i] += Numeric<T>::widen(y[m].value[i]);
      }
    }
    if (!has_taps) continue;

    constexpr int kWindow = kPixels + kTaps - 1;
    const int ix0 = start + columns.offset - (block_v * kTaps + kTaps - 1) * g.v.reach;
    const bool inside = ix0 >= 0 && ix0 + (kWindow - 1) * g.v.reach < g.v.in &&
                        column0 + (kPixels - 1) * g.v.period < g.v.out;
    const T* x =
        static_cast<const T*>(g.x) + n * (int64_t{g.h.in} * g.v.in * g.in_channels) + x_channel;
#pragma unroll
    for (int j = 0; j < kTaps; ++j) {
      const int iy = q + rows.offset - (block_h * kTaps + j) * g.h.reach;
      if (unsigned(iy) >= unsigned(g.h.in)) continue;
      const T* x_row = x + iy * g.v.in * g.in_channels;
      Pack<T, kVector> window[kWindow];
#pragma unroll
      for (int u = 0; u < kWindow; ++u) {
        const int ix = ix0 + u * g.v.reach;
        window[u] =
            load_pack<T, kVector>(x_row + ix * g.in_channels, unsigned(ix) < unsigned(g.v.in));
      }
      if (inside) {
        correlate_pixels<T, kVector, kTaps, false>(y, window, 0, 0, acc[j]);
      } else {
        correlate_pixels<T, kVector, kTaps, true>(
            y, window, pixels_inside<kPixels>(column0, g.v.period, g.v.out),
            pixels_inside<kWindow>(ix0, g.v.reach, g.v.in), acc[j]);
      }
    }
  }

#pragma unroll
  for (int j = 0; j < kTaps; ++j) {
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) {
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        sums[((j * kTaps + tap) * kVector + i) * kThreads + threadIdx.x] = acc[j][tap][i];
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kVector; ++i) sums[(kValues + i) * kThreads + threadIdx.x] = bias[i];
  __syncthreads();

  // One thread a class and channel group writes its taps; a tap belongs to exactly one class.
  if (item_slot == 0 && active) {
    const int step = t.class_slots * t.lanes;
    float* parts = static_cast<float*>(g.result) +
                   (int64_t{piece} * g.out_channels + channel) * (int64_t{g.h.kernel} * g.v.kernel);
#pragma unroll 1
    for (int j = 0; j < kTaps; ++j) {
      const int tap_row = block_h * kTaps + j;
#pragma unroll 1
      for (int tap = 0; tap < kTaps; ++tap) {
        const int tap_column = block_v * kTaps + tap;
        if (tap_row >= rows.taps || tap_column >= columns.taps) continue;
        const int w_index =
            (rows.first + tap_row * g.h.step) * g.v.kernel + columns.first + tap_column * g.v.step;
#pragma unroll 1
        for (int i = 0; i < kVector; ++i) {
          float sum = 0;
          for (int other = 0; other < t.item_slots; ++other) {
            sum += sums[((j * kTaps + tap) * kVector + i) * kThreads + other * step + threadIdx.x];
          }
          parts[i * g.h.kernel * g.v.kernel + w_index] = sum;
        }
      }
    }
  }
  if (p.bias_parts != nullptr && slot == 0 && channel < g.out_channels) {
    for (int i = 0; i < kVector; ++i) {
      float sum = 0;
      for (int other = 0; other < t.class_slots * t.item_slots; ++other) {
        sum += sums[(kValues + i) * kThreads + other * t.lanes + lane];
      }
      p.bias_parts[(int64_t{piece} * t.class_groups + group) * g.out_channels + channel + i] = sum;
    }
  }
}

}  // namespace convt2d::cuda::depthwise::pixels
