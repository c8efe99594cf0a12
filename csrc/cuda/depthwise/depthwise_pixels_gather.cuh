// NHWC forward and grad_input.
#pragma once

#include "cuda/depthwise/depthwise_pixels.cuh"

namespace convt2d::cuda::depthwise::pixels {

struct ForwardParams {
  Geometry g;
  PixelForwardTile t;
};

template <typename T, int kVector>
__device__ __noinline__ void exact_run(const Geometry& g, int64_t n, int channel, int oy,
                                       int column, int column_step, T* y) {
#pragma unroll 1
  for (int m = 0; m < kPixels; ++m, column += column_step) {
    if (column >= g.v.out) return;
#pragma unroll 1
    for (int i = 0; i < kVector; ++i) {
      store(y + (oy * g.v.out + column) * g.out_channels + i,
            exact_output<T>(g, n, channel + i, oy, column));
    }
  }
}

// A block owns a slice of channels and some output rows of one row phase, so the weights it needs are
// few. Reads x through the cache, each row once a row phase; writes y. One barrier.
template <typename T, int kVector, int kTaps, bool kDoubled>
__device__ __forceinline__ void gather_rows(const ForwardParams& p, const float* weights,
                                            bool careful, int64_t n, int phase_h, int first_q,
                                            int first_channel) {
  constexpr int kWindow = kPixels + kTaps - 1, kAtOnce = pixel_rows(kTaps, kVector);
  const Geometry& g = p.g;
  const PixelForwardTile& t = p.t;
  const int last_q = min(first_q + t.rows, (g.h.out - phase_h - 1) / g.h.stride + 1);
  const Phase row_phase = g.h.phases[phase_h];
  const T* x = static_cast<const T*>(g.x) + n * (int64_t{g.h.in} * g.v.in * g.in_channels);
  T* y = static_cast<T*>(g.result) + n * (int64_t{g.h.out} * g.v.out * g.out_channels);
  const int x_pitch = g.v.in * g.in_channels, y_pitch = g.v.out * g.out_channels;
  const int x_step = g.v.reach * g.in_channels, y_step = g.v.period * g.out_channels;
  const int w_pitch = t.w.columns * t.w.pitch, w_step = g.v.step * t.w.pitch;

  bool spoiled = false;
  for (int item = threadIdx.x; item < t.items * t.row_slots; item += kThreads) {
    const int row_slot = t.by_items.quotient(item), place = item - row_slot * t.items;
    const int pixel = t.by_lanes.quotient(place), lane = place - pixel * t.lanes;
    const int run = t.by_period.quotient(pixel);
    const int column0 = pixel - run * g.v.period + run * kPixels * g.v.period;
    const int channel = first_channel + lane * kVector;
    if (channel >= g.out_channels || column0 >= g.v.out) continue;
    const int start = g.v.by_stride.quotient(column0);
    const Phase phase = g.v.phases[column0 - start * g.v.stride];
    float bias[kVector];
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      bias[i] = g.bias ? load(static_cast<const T*>(g.bias) + channel + i) : 0.f;
    }
    // Window u holds the input of output m through tap m + kTaps - 1 - u of the first tap block.
    const int first_ix = start + phase.offset - (kTaps - 1) * g.v.reach;
    const T* x_first = x + (int64_t{first_ix} * g.in_channels + g.by_multiplier.quotient(channel));
    const float* first_weights = weights + phase.first * t.w.pitch + lane * kVector;
    T* y_first = y + (int64_t{column0} * g.out_channels + channel);
    const int row_taps = phase.taps > 0 ? row_phase.taps : 0;

    for (int q = first_q + row_slot; q < last_q; q += t.row_slots) {
      const int oy = phase_h + q * g.h.stride;
      float acc[kPixels][kVector];
#pragma unroll
      for (int m = 0; m < kPixels; ++m) {
#pragma unroll
        for (int i = 0; i < kVector; ++i) acc[m][i] = bias[i];
      }

      // Small tap blocks are made for small kernels: then there is only one.
      const int rows_of_taps = kTaps < kPixelTaps ? kAtOnce : row_taps;
      const int tap_blocks = kTaps < kPixelTaps ? 1 : t.tap_blocks;
      for (int j0 = 0; j0 < rows_of_taps; j0 += kAtOnce) {
        int ix0 = first_ix;
        const T* x_block = x_first;
        const float* tap_weights = first_weights + j0 * w_pitch;
        for (int block = 0; block < tap_blocks; ++block) {
          Pack<T, kVector> window[kAtOnce][kWindow];
#pragma unroll
          for (int j = 0; j < kAtOnce; ++j) {
            const int iy = q + row_phase.offset - (j0 + j) * g.h.reach;
            const bool row = (unsigned(iy) < unsigned(g.h.in)) & (j0 + j < row_taps);
            const T* from = x_block + int64_t{iy} * x_pitch;
#pragma unroll
            for (int u = 0; u < kWindow; ++u) {
              window[j][u] = load_pixel<T, kVector, kDoubled>(
                  from + u * x_step, row & (unsigned(ix0 + u * g.v.reach) < unsigned(g.v.in)));
            }
          }
#pragma unroll
          for (int j = 0; j < kAtOnce; ++j) {
#pragma unroll
            for (int tap = 0; tap < kTaps; ++tap) {
              float weight[kVector];
              load_channels<kVector>(tap_weights + j * w_pitch + tap * w_step, weight);
#pragma unroll
              for (int m = 0; m < kPixels; ++m) {
#pragma unroll
                for (int i = 0; i < kVector; ++i) {
                  acc[m][i] = fmaf(Numeric<T>::widen(window[j][m + kTaps - 1 - tap].value[i]),
                                   weight[i], acc[m][i]);
                }
              }
            }
          }
          ix0 -= kTaps * g.v.reach;
          x_block -= kTaps * x_step;
          tap_weights += kTaps * w_step;
        }
      }

      T* to = y_first + int64_t{oy} * y_pitch;
#pragma unroll
      for (int m = 0; m < kPixels; ++m) {
        Pack<T, kVector> narrow;
#pragma unroll
        for (int i = 0; i < kVector; ++i) {
          narrow.value[i] = Numeric<T>::narrow(acc[m][i]);
        }
        if (column0 + m * g.v.period < g.v.out) {
          *reinterpret_cast<Pack<T, kVector>*>(to + m * y_step) = narrow;
        }
      }
      if (careful) {
        float sum = 0;
#pragma unroll
        for (int m = 0; m < kPixels; ++m) {
#pragma unroll
          for (int i = 0; i < kVector; ++i) sum += acc[m][i];
        }
        spoiled |= !is_finite(sum);
      }
    }
  }
  if (!spoiled) return;
#pragma unroll 1
  for (int item = threadIdx.x; item < t.items * t.row_slots; item += kThreads) {
    const int row_slot = t.by_items.quotient(item), place = item - row_slot * t.items;
    const int pixel = t.by_lanes.quotient(place), lane = place - pixel * t.lanes;
    const int run = t.by_period.quotient(pixel);
    const int column0 = pixel - run * g.v.period + run * kPixels * g.v.period;
    const int channel = first_channel + lane * kVector;
    if (channel >= g.out_channels) continue;
#pragma unroll 1
    for (int q = first_q + row_slot; q < last_q; q += t.row_slots) {
      exact_run<T, kVector>(g, n, channel, phase_h + q * g.h.stride, column0, g.v.period,
                            y + channel);
    }
  }
}

template <typename T, int kVector, int kTaps>
__global__ void __launch_bounds__(kThreads, 2)
    convt2d_depthwise_fwd_kernel(const __grid_constant__ ForwardParams p) {
  const Geometry& g = p.g;
  const PixelForwardTile& t = p.t;
  extern __shared__ float4 shared[];
  float* weights = reinterpret_cast<float*>(shared);

  int64_t n = blockIdx.x;
  const int phase_h = t.by_phases.split(n);
  const int first_q = t.by_row_groups.split(n) * t.rows;
  const int first_channel = t.by_slices.split(n) * t.w.channels;
  const Phase row_phase = g.h.phases[phase_h];

  const auto filter_of = [&](int local) {
    const int co = first_channel + local, c = g.by_multiplier.quotient(co);
    return c * g.w_stride[0] + (co - c * g.multiplier) * g.w_stride[1];
  };
  const bool finite = stage_slice<T>(g, t.w, row_phase.first, g.h.step, t.tap_rows, row_phase.taps,
                                     g.out_channels - first_channel, filter_of, weights);
  // As in the NCHW kernel: where a zero pad could spoil a sum, results are looked at.
  const bool careful = __syncthreads_or(!finite) || t.padded_taps;
  if constexpr (kVector > 1) {
    if (g.multiplier == 2) {
      return gather_rows<T, kVector, kTaps, true>(p, weights, careful, n, phase_h, first_q,
                                                  first_channel);
    }
  }
  gather_rows<T, kVector, kTaps, false>(p, weights, careful, n, phase_h, first_q, first_channel);
}

struct GradInputParams {
  Geometry g;
  PixelGradInputTile t;
};

// A thread owns kPixels x positions of one residue and walks the kernel rows; each phase of y along
// the row is one short correlation. `sharers` threads may split the kernel rows of an item between
// them. Reads y through the cache, a row once a tap block; writes x.
template <typename T, int kVector, int kTaps>
__global__ void __launch_bounds__(kThreads, 2)
    convt2d_depthwise_grad_input_kernel(const __grid_constant__ GradInputParams p) {
  const Geometry& g = p.g;
  const PixelGradInputTile& t = p.t;
  extern __shared__ float4 shared[];
  float* weights = reinterpret_cast<float*>(shared);

  int64_t n = blockIdx.x;
  const int item_block = t.by_item_blocks.split(n);
  const int first_channel = t.by_slices.split(n) * t.w.channels;

  const int sharer = threadIdx.x / t.block_items;
  const int item = item_block * t.block_items + threadIdx.x - sharer * t.block_items;
  const int pixel = t.by_lanes.quotient(item), lane = item - pixel * t.lanes;
  const int residue_runs = t.by_residues.quotient(pixel);
  const int residue = pixel - residue_runs * g.v.reach;
  const int iy = t.by_runs.quotient(residue_runs), run = residue_runs - iy * t.runs;
  const int channel = first_channel + lane * kVector;
  const int position0 = run * kPixels;
  const int column0 = residue + position0 * g.v.reach;
  const bool active = item < t.items && channel < g.in_channels && column0 < g.v.in;

  float acc[kPixels][kVector] = {};
  for (int copy = 0; copy < g.multiplier; ++copy) {
    const T* y = static_cast<const T*>(g.y) + n * (int64_t{g.h.out} * g.v.out * g.out_channels) +
                 channel * g.multiplier + copy;
    for (int first_row = 0; first_row < g.h.kernel; first_row += t.weight_rows) {
      const int rows = min(t.weight_rows, g.h.kernel - first_row);
      __syncthreads();
      const auto filter_of = [&](int local) {
        return (first_channel + local) * g.w_stride[0] + copy * g.w_stride[1];
      };
      stage_slice<T>(g, t.w, first_row, 1, rows, rows, g.in_channels - first_channel, filter_of,
                     weights);
      __syncthreads();
      if (!active) continue;

      // One step is one (row of w, column phase, tap block); the next step's pixels are on their way
      // while this one is summed. Window u holds the output that reads position m through tap u - m.
      constexpr int kWindow = kPixels + kTaps - 1;
      struct Step {
        int row, phase, block;
      };
      const auto fetch = [&](const Step& step, Pack<T, kVector>(&window)[kWindow]) {
        const Phase phase = g.v.phases[step.phase];
        const Class columns = class_of(g.v, step.phase, phase.offset, residue);
        const int oy = iy * g.h.stride - g.h.near_pad + (first_row + step.row) * g.h.dilation;
        const bool inside = step.row < rows && unsigned(oy) < unsigned(g.h.out);
        const int ox0 =
            columns.first_output + (position0 - columns.base + step.block * kTaps) * g.v.period;
        const T* from = y + int64_t{oy * g.v.out + ox0} * g.out_channels;
#pragma unroll
        for (int u = 0; u < kWindow; ++u) {
          const int ox = ox0 + u * g.v.period;
          window[u] = load_pack<T, kVector>(from + u * g.v.period * g.out_channels,
                                            inside && unsigned(ox) < unsigned(g.v.out));
        }
      };
      const auto advance = [&](Step& step) {
        if (++step.block < t.tap_blocks) return;
        step.block = 0;
        if (++step.phase < g.v.stride) return;
        step.phase = 0;
        step.row += t.sharers;
      };
      Pack<T, kVector> next[kWindow];
      Step step{sharer, 0, 0};
      fetch(step, next);
      while (step.row < rows) {
        Pack<T, kVector> window[kWindow];
#pragma unroll
        for (int u = 0; u < kWindow; ++u) window[u] = next[u];
        const Phase phase = g.v.phases[step.phase];
        const float* tap_weights =
            weights +
            (step.row * t.w.columns + phase.first + step.block * kTaps * g.v.step) * t.w.pitch +
            lane * kVector;
        advance(step);
        fetch(step, next);
        if (phase.taps == 0) continue;
#pragma unroll
        for (int tap = 0; tap < kTaps; ++tap) {
          float weight[kVector];
          load_channels<kVector>(tap_weights + tap * g.v.step * t.w.pitch, weight);
#pragma unroll
          for (int m = 0; m < kPixels; ++m) {
#pragma unroll
            for (int i = 0; i < kVector; ++i) {
              acc[m][i] = fmaf(Numeric<T>::widen(window[m + tap].value[i]), weight[i], acc[m][i]);
            }
          }
        }
      }
    }
  }

  if (t.sharers > 1) {  // [value][thread], added in the order of the sharers
    float* sums = weights;
    __syncthreads();
#pragma unroll
    for (int m = 0; m < kPixels; ++m) {
#pragma unroll
      for (int i = 0; i < kVector; ++i)
        sums[(m * kVector + i) * kThreads + threadIdx.x] = acc[m][i];
    }
    __syncthreads();
    if (sharer > 0) return;
#pragma unroll
    for (int m = 0; m < kPixels; ++m) {
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
#pragma unroll 1
        for (int other = 1; other < t.sharers; ++other) {
          acc[m][i] += sums[(m * kVector + i) * kThreads + other * t.block_items + threadIdx.x];
        }
      }
    }
  }
  if (!active) return;

  T* x = static_cast<T*>(g.result) + n * (int64_t{g.h.in} * g.v.in * g.in_channels) + channel;
#pragma unroll
  for (int m = 0; m < kPixels; ++m) {
    const int column = column0 + m * g.v.reach;
    if (column >= g.v.in) break;
    Pack<T, kVector> narrow;
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      narrow.value[i] = Numeric<T>::narrow(acc[m][i]);
    }
    *reinterpret_cast<Pack<T, kVector>*>(x + (iy * g.v.in + column) * g.in_channels) = narrow;
  }
  float sum = 0;
#pragma unroll
  for (int m = 0; m < kPixels; ++m) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) sum += acc[m][i];
  }
  if (is_finite(sum)) return;
#pragma unroll 1
  for (int m = 0; m < kPixels; ++m) {
    const int column = column0 + m * g.v.reach;
#pragma unroll 1
    for (int i = 0; i < kVector && column < g.v.in; ++i) {
      store(x + (iy * g.v.in + column) * g.in_channels + i,
            exact_input<T>(g, n, channel + i, iy, column));
    }
  }
}

}  // namespace convt2d::cuda::depthwise::pixels
