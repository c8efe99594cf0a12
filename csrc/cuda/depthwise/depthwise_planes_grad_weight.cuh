// NCHW grad_weight.
#pragma once

#include "cuda/depthwise/depthwise_planes.cuh"

namespace convt2d::cuda::depthwise::planes {

struct GradWeightParams {
  Geometry g;
  PlaneGradWeightTile t;
  bool x_paired;      // rows of x allow access to two elements at once
  float* bias_parts;  // [split * phase_groups][C_out] or null
};

// acc[j][tap][v] += y[v][m] * x[position m + shift - j] for one run. With kEdge, products whose y or x
// row lies outside are left out.
template <int kTaps, int kShift, bool kEdge>
__device__ __forceinline__ void correlate_run(const GradWeightParams& p, const float* run,
                                              int first_column, int block_v,
                                              const Column (&columns)[kPair],
                                              const float (&y)[kPair][kRun], unsigned y_rows,
                                              unsigned x_rows, float (&acc)[kTaps][kTaps][kPair]) {
  constexpr int kWindow = kRun + kTaps - 1 + kShift;
#pragma unroll
  for (int v = 0; v < kPair; ++v) {
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) {
      const int input = columns[v].input - (block_v * kTaps + tap) * p.g.v.reach;
      if (block_v * kTaps + tap >= columns[v].taps) continue;
      if (unsigned(input) >= unsigned(p.g.v.in)) continue;
      float window[kWindow];
      load_window(run + (input - first_column) * p.t.x.pitch, window);
#pragma unroll
      for (int j = 0; j < kTaps; ++j) {
#pragma unroll
        for (int m = 0; m < kRun; ++m) {
          constexpr int kLast = kShift + kTaps - 1;
          if (kEdge && !((y_rows >> m) & (x_rows >> (m + kLast - j)) & 1)) continue;
          acc[j][tap][v] = fmaf(window[m + kLast - j], y[v][m], acc[j][tap][v]);
        }
      }
    }
  }
}

__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) value += __shfl_xor_sync(~0u, value, lane);
  return value;
}

// Bit i: row first + i * step lies in [0, extent).
template <int kCount>
__device__ __forceinline__ unsigned rows_inside(int first, int step, int extent) {
  unsigned mask = 0;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    mask |= unsigned(unsigned(first + i * step) < unsigned(extent)) << i;
  }
  return mask;
}

// One output channel, one group of row phases, one tap block, one piece of the (image, tile) units.
// Every thread keeps its columns and its row phase, so its taps stay in registers until the end; then
// a warp a tap adds up the threads in a fixed order. Reads y once, x once a phase group; writes its
// partial sums.
template <typename T, int kTaps, bool kPaired>
__global__ void __launch_bounds__(kThreads, kTaps < 3 ? 3 : 2)
    convt2d_depthwise_grad_weight_kernel(const __grid_constant__ GradWeightParams p) {
  const Geometry& g = p.g;
  const PlaneGradWeightTile& t = p.t;
  extern __shared__ float4 shared[];
  float* tiles = reinterpret_cast<float*>(shared);
  const int tile_floats = t.x.columns * t.x.pitch;

  int64_t block = blockIdx.x;
  const int piece = t.by_split.split(block);
  const int group = t.by_phase_groups.split(block);
  const int block_v = t.by_tap_blocks_v.split(block);
  const int block_h = t.by_tap_blocks_h.split(block);
  const int co = int(block);

  const int task_slot = threadIdx.x / t.slots, slot = threadIdx.x - task_slot * t.slots;
  const int run_slot = t.by_phase_slots.quotient(task_slot);
  const int phase = group * t.phase_slots + task_slot - run_slot * t.phase_slots;
  const bool active = task_slot < t.phase_slots * t.run_slots && phase < g.h.stride;
  const Phase row_phase = g.h.phases[active ? phase : 0];
  const bool has_taps = row_phase.taps > block_h * kTaps;
  const bool wants_bias = p.bias_parts != nullptr && block_h == 0 && block_v == 0;
  const ColumnPair pair = column_pair<kPaired>(t.slots, slot);

  float acc[kTaps][kTaps][kPair] = {};
  float bias = 0;
  const int last_unit = min(t.units, (piece + 1) * t.units_a_block);
  for (int unit = piece * t.units_a_block; unit < last_unit; ++unit) {
    int64_t image_group = unit;
    const int tile_v = t.by_tiles_v.split(image_group);
    const int tile_h = t.by_tiles_h.split(image_group);
    const int residue = t.by_reach.split(image_group);
    const int64_t first_image = image_group * t.images;
    const int images = int(min(int64_t{t.images}, g.batch - first_image));
    const int first_column = first_x_column(g.v, tile_v * t.columns);
    const int first_i = tile_h * t.runs * kRun;
    const int base = lowest_base(g.h, residue);
    const int first_position = first_i + base - t.x.lead;
    const int c = g.by_multiplier.quotient(co);

    __syncthreads();
    stage_x<T>(
        g, t.x, p.x_paired, images,
        [&](int local) { return (first_image + local) * g.in_channels + c; },
        residue + first_position * g.h.reach, first_column, tiles);
    __syncthreads();

    const int column0 = tile_v * t.columns + pair.first, column1 = tile_v * t.columns + pair.second;
    if (!active || column0 >= g.v.out || !(has_taps || wants_bias)) continue;
    const Column columns[kPair] = {column_of(g.v, column0), column_of(g.v, column1)};
    const Class rows = class_of(g.h, phase, row_phase.offset, residue);
    const int64_t row_step = int64_t{g.h.period} * g.v.out;
    const int row_count = class_size(g.h, rows.first_output);

    // The rows of the next task are on their way while this one is summed.
    const T* y = static_cast<const T*>(g.y) +
                 (first_image * g.out_channels + co) * (int64_t{g.h.out} * g.v.out) +
                 int64_t{rows.first_output} * g.v.out + column0;
    const auto fetch = [&](int task, RawRows<T, kRun>& raw) {
      const int local = t.by_runs.quotient(task), run = task - local * t.runs;
      const int i = first_i + run * kRun;
      raw.template fetch<kPaired>(
          y + local * (int64_t{g.out_channels} * g.h.out * g.v.out) + i * row_step,
          task < images * t.runs ? row_count : 0, i, row_step, column1 - column0,
          column1 < g.v.out);
    };
    RawRows<T, kRun> raw;
    fetch(run_slot, raw);
    for (int task = run_slot; task < images * t.runs; task += t.run_slots) {
      const int local = t.by_runs.quotient(task), run = task - local * t.runs;
      float values[kPair][kRun];
      raw.widen(values);
      fetch(task + t.run_slots, raw);
      const int rows_left = row_count - first_i - run * kRun;
      if (rows_left <= 0) continue;
      if (wants_bias) {
#pragma unroll
        for (int m = 0; m < kRun; ++m) bias += values[0][m] + values[1][m];
      }
      if (!has_taps) continue;
      // The tap block's window starts here, in positions of the tile.
      const int start = run * kRun + (t.tap_blocks_h - 1 - block_h) * kTaps;
      const int x_row = residue + (first_position + start) * g.h.reach;
      const int x_last = x_row + (kRun + kTaps - 1) * g.h.reach;
      const float* windows = tiles + local * tile_floats + start;
      const bool inside = x_row >= 0 && x_last < g.h.in && rows_left >= kRun;
      const unsigned y_rows = (1u << min(rows_left, kRun)) - 1;
      const unsigned x_rows = inside ? 0 : rows_inside<kRun + kTaps>(x_row, g.h.reach, g.h.in);
      if (rows.base == base) {
        if (inside) {
          correlate_run<kTaps, 0, false>(p, windows, first_column, block_v, columns, values, 0, 0,
                                         acc);
        } else {
          correlate_run<kTaps, 0, true>(p, windows, first_column, block_v, columns, values, y_rows,
                                        x_rows, acc);
        }
      } else if (inside) {
        correlate_run<kTaps, 1, false>(p, windows, first_column, block_v, columns, values, 0, 0,
                                       acc);
      } else {
        correlate_run<kTaps, 1, true>(p, windows, first_column, block_v, columns, values, y_rows,
                                      x_rows, acc);
      }
    }
  }

  // sums[task slot][j][tap][column]
  __syncthreads();
  float* sums = tiles;
  const int slot_floats = kTaps * kTaps * t.columns;
  float* bias_sums = sums + t.task_slots * slot_floats;
  if (task_slot < t.task_slots) {
#pragma unroll
    for (int j = 0; j < kTaps; ++j) {
#pragma unroll
      for (int tap = 0; tap < kTaps; ++tap) {
        float* to = sums + task_slot * slot_floats + (j * kTaps + tap) * t.columns;
        to[pair.first] = acc[j][tap][0];
        to[pair.second] = acc[j][tap][1];
      }
    }
    bias_sums[task_slot * t.slots + slot] = bias;
  }
  __syncthreads();

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float* parts = static_cast<float*>(g.result) +
                 (int64_t{piece} * g.out_channels + co) * (int64_t{g.h.kernel} * g.v.kernel);
  for (int output = warp; output < t.phase_slots * kTaps * g.v.kernel; output += kThreads / 32) {
    const int row = t.by_kernel_v.quotient(output), tap_column = output - row * g.v.kernel;
    const int j = row % kTaps, phase_slot = row / kTaps;
    const int output_phase = group * t.phase_slots + phase_slot;
    if (output_phase >= g.h.stride) continue;
    const Phase rows = g.h.phases[output_phase];
    const int tap_row = block_h * kTaps + j;
    const int tap = tap_column / g.v.step - block_v * kTaps;
    if (tap_row >= rows.taps || tap < 0 || tap >= kTaps) continue;
    const int first = floor_remainder(tap_column * g.v.dilation - g.v.near_pad, g.v.stride);
    float sum = 0;
    for (int slot = 0; slot < t.run_slots; ++slot) {
      const float* from =
          sums + (slot * t.phase_slots + phase_slot) * slot_floats + (j * kTaps + tap) * t.columns;
      for (int column = first + lane * g.v.stride; column < t.columns; column += 32 * g.v.stride) {
        sum += from[column];
      }
    }
    sum = warp_sum(sum);
    if (lane == 0) parts[(rows.first + tap_row * g.h.step) * g.v.kernel + tap_column] = sum;
  }
  if (wants_bias && warp == 0) {
    float sum = 0;
    for (int i = lane; i < t.task_slots * t.slots; i += 32) sum += bias_sums[i];
    sum = warp_sum(sum);
    if (lane == 0)
      p.bias_parts[(int64_t{piece} * t.phase_groups + group) * g.out_channels + co] = sum;
  }
}

}  // namespace convt2d::cuda::depthwise::planes
