// NCHW forward and grad_input.
#pragma once

#include "cuda/depthwise/depthwise_planes.cuh"

namespace convt2d::cuda::depthwise::planes {

struct ForwardParams {
  Geometry g;
  PlaneForwardTile t;
  bool x_paired;  // rows of x allow access to two elements at once
};

// Where the taps of a thread's two columns lie in shared memory, in floats.
template <int kTaps>
struct TapPlaces {
  int x[kPair][kTaps], w[kPair][kTaps];

  // A tap that does not exist, or an input outside x, becomes the zero column.
  __device__ __forceinline__ TapPlaces(const ForwardParams& p, const Column (&columns)[kPair],
                                       int first_column, int block) {
#pragma unroll
    for (int v = 0; v < kPair; ++v) {
#pragma unroll
      for (int i = 0; i < kTaps; ++i) {
        const int tap = block * kTaps + i;
        const bool exists = tap < columns[v].taps;
        const int input = columns[v].input - tap * p.g.v.reach;
        const bool inside = exists && unsigned(input) < unsigned(p.g.v.in);
        x[v][i] = (inside ? input - first_column : p.t.x.columns - 1) * p.t.x.pitch;
        w[v][i] = (columns[v].first + (exists ? tap : 0) * p.g.v.step) * p.t.w.pitch;
      }
    }
  }
};

// acc[v][m] += x[position m + base - j] * w[j] over one tap block of the rows and one of the columns.
template <int kTaps, int kShift>
__device__ __forceinline__ void gather_block(const float* run, const float* weights,
                                             const TapPlaces<kTaps>& places,
                                             float (&acc)[kPair][kRun]) {
#pragma unroll
  for (int v = 0; v < kPair; ++v) {
#pragma unroll
    for (int i = 0; i < kTaps; ++i) {
      float window[kRun + kTaps - 1 + kShift], tap_weights[kTaps];
      load_window(run + places.x[v][i], window);
      load_weights<kTaps>(weights + places.w[v][i], tap_weights);
#pragma unroll
      for (int j = 0; j < kTaps; ++j) {
#pragma unroll
        for (int m = 0; m < kRun; ++m) {
          acc[v][m] = fmaf(window[m + kShift + kTaps - 1 - j], tap_weights[j], acc[v][m]);
        }
      }
    }
  }
}

template <typename T, bool kPaired>
__device__ __forceinline__ void store_run(T* y, int64_t row_step, int rows, int second,
                                          bool has_second, const float (&acc)[kPair][kRun]) {
#pragma unroll
  for (int m = 0; m < kRun; ++m) {
    if (m < rows) {
      if constexpr (kPaired) {
        *reinterpret_cast<Pair<T>*>(y) = Pair<T>::narrow(acc[0][m], acc[1][m]);
      } else {
        store(y, acc[0][m]);
        if (has_second) store(y + second, acc[1][m]);
      }
    }
    y += row_step;
  }
}

template <typename T>
__device__ __noinline__ void exact_run(const ForwardParams& p, int64_t plane, int first_row,
                                       int first_column, int second_column) {
  const Geometry& g = p.g;
  const int64_t n = plane / g.out_channels;
  const int co = int(plane - n * g.out_channels);
  T* y = static_cast<T*>(g.result) + plane * (int64_t{g.h.out} * g.v.out);
#pragma unroll 1
  for (int i = 0; i < kRun * kPair; ++i) {
    const int row = first_row + i / kPair * g.h.period;
    const int column = i % kPair ? second_column : first_column;
    if (row >= g.h.out || column >= g.v.out) continue;
    store(y + row * g.v.out + column, exact_output<T>(g, n, co, row, column));
  }
}

// Reads: x once (its tile's halo twice), w. Writes: y. One barrier, after the operands are staged.
template <typename T, int kTaps, bool kPaired>
__global__ void __launch_bounds__(kThreads, kTaps < 3 ? 4 : 3)
    convt2d_depthwise_fwd_kernel(const __grid_constant__ ForwardParams p) {
  const Geometry& g = p.g;
  const PlaneForwardTile& t = p.t;
  extern __shared__ float4 shared[];
  float* tiles = reinterpret_cast<float*>(shared);
  const int tile_floats = t.x.columns * t.x.pitch;
  float* weights = tiles + t.planes * tile_floats;

  int64_t block = blockIdx.x;
  const int tile_v = t.by_tiles_v.split(block);
  const int tile_h = t.by_tiles_h.split(block);
  const int residue = t.by_reach.split(block);
  const int64_t first_plane = block * t.planes;
  const int planes = int(min(int64_t{t.planes}, g.batch * g.out_channels - first_plane));

  const int first_column = first_x_column(g.v, tile_v * t.columns);
  const int first_i = tile_h * t.runs * kRun;
  const int base = lowest_base(g.h, residue);

  const auto channel_of = [&](int local) {
    int64_t n = first_plane + local;
    return int(g.by_out_channels.split(n));
  };
  int64_t first_x_plane = first_plane;
  const int first_copy = g.by_multiplier.split(first_x_plane);
  const auto x_plane_of = [&](int local) {
    return first_x_plane + g.by_multiplier.quotient(first_copy + local);
  };
  const bool finite = stage_plane_weights<T>(g, t.w, planes, channel_of, weights);
  stage_x<T>(g, t.x, p.x_paired, planes, x_plane_of,
             residue + (first_i + base - t.x.lead) * g.h.reach, first_column, tiles);
  // A zero pad times a weight that is not finite, or a tap padded with zero on an input that is not,
  // would spoil a sum: then results are looked at.
  const bool careful = __syncthreads_or(!finite) || t.padded_taps;

  const int task_slot = t.by_slots.quotient(threadIdx.x), slot = threadIdx.x - task_slot * t.slots;
  if (task_slot >= t.task_slots) return;
  const ColumnPair pair = column_pair<kPaired>(t.slots, slot);
  const int column0 = tile_v * t.columns + pair.first, column1 = tile_v * t.columns + pair.second;
  if (column0 >= g.v.out) return;
  const Column columns[kPair] = {column_of(g.v, column0), column_of(g.v, column1)};
  TapPlaces<kTaps> places(p, columns, first_column, 0);
  const int64_t row_step = int64_t{g.h.period} * g.v.out;

  for (int task = task_slot; task < planes * t.tasks; task += t.task_slots) {
    const int per_phase = t.by_phases.quotient(task), phase = task - per_phase * g.h.stride;
    const int local = t.by_runs.quotient(per_phase), run = per_phase - local * t.runs;
    const Class rows = class_of(g.h, phase, g.h.phases[phase].offset, residue);
    const int row0 = rows.first_output + (first_i + run * kRun) * g.h.period;
    if (row0 >= g.h.out) continue;

    const float* plane_weights = weights + local * t.w.plane;
    float acc[kPair][kRun];
#pragma unroll
    for (int m = 0; m < kRun; ++m) acc[0][m] = acc[1][m] = plane_weights[t.w.plane - 1];

    const float* windows = tiles + local * tile_floats + run * kRun;
    const float* phase_weights = plane_weights + phase * g.v.kernel * t.w.pitch;
    const int blocks_v = kTaps < kPlaneTaps ? 1 : t.tap_blocks_v;
    for (int block_v = 0; block_v < blocks_v && g.h.phases[phase].taps > 0; ++block_v) {
      if (kTaps == kPlaneTaps && t.tap_blocks_v > 1) {
        places = TapPlaces<kTaps>(p, columns, first_column, block_v);
      }
      for (int block_h = 0; block_h < (kTaps < kPlaneTaps ? 1 : t.tap_blocks_h); ++block_h) {
        const float* from = windows + (t.tap_blocks_h - 1 - block_h) * kTaps;
        if (rows.base == base) {
          gather_block<kTaps, 0>(from, phase_weights + block_h * kTaps, places, acc);
        } else {
          gather_block<kTaps, 1>(from, phase_weights + block_h * kTaps, places, acc);
        }
      }
    }

    const int64_t plane = first_plane + local;
    T* y = static_cast<T*>(g.result) + plane * (int64_t{g.h.out} * g.v.out) +
           int64_t{row0} * g.v.out + column0;
    if (row0 + (kRun - 1) * g.h.period < g.h.out) {
      store_run<T, kPaired>(y, row_step, kRun, column1 - column0, column1 < g.v.out, acc);
    } else {
      store_run<T, kPaired>(y, row_step, g.h.by_period.quotient(g.h.out - row0 - 1) + 1,
                            column1 - column0, column1 < g.v.out, acc);
    }
    if (careful) {
      float sum = 0;
#pragma unroll
      for (int m = 0; m < kRun; ++m) sum += acc[0][m] + acc[1][m];
      if (!is_finite(sum)) exact_run<T>(p, plane, row0, column0, column1);
    }
  }
}

struct GradInputParams {
  Geometry g;
  PlaneGradInputTile t;
};

// A thread walks two y columns and sums down each column first: shares[plane][tap column][y column]
// [position], even columns before odd ones against bank conflicts. Then every x element adds the shares
// of its kernel's columns. Reads y once (a run's halo again, from the cache), w; writes x. A result that
// is not finite is computed again by definition.
template <typename T, int kTaps, bool kPaired>
__global__ void __launch_bounds__(kThreads, kTaps < 3 ? 3 : 2)
    convt2d_depthwise_grad_input_kernel(const __grid_constant__ GradInputParams p) {
  const Geometry& g = p.g;
  const PlaneGradInputTile& t = p.t;
  extern __shared__ float4 shared[];
  float* shares = reinterpret_cast<float*>(shared);
  const int tap_floats = t.columns * t.share_pitch;
  const int plane_floats = t.tap_blocks_v * kTaps * tap_floats;
  float* weights = shares + t.planes * plane_floats;

  int64_t block = blockIdx.x;
  const int tile_v = t.by_tiles_v.split(block);
  const int step_group = t.by_tiles_h.split(block);
  const int residue = t.by_reach.split(block);
  const int64_t first_plane = block * t.planes;
  const int planes = int(min(int64_t{t.planes}, g.batch * g.in_channels - first_plane));
  const int x_column = tile_v * t.x_columns;
  const int y_column = max(0, x_column * g.v.stride - g.v.near_pad) & ~1;
  const int64_t row_step = int64_t{g.h.period} * g.v.out;

  // A thread keeps its columns and its run of a tile.
  const int task = t.by_slots.quotient(threadIdx.x), slot = threadIdx.x - task * t.slots;
  const int local = t.by_runs.quotient(task), run = task - local * t.runs;
  const ColumnPair pair = column_pair<kPaired>(t.slots, slot);
  const int column0 = y_column + pair.first, column1 = y_column + pair.second;
  const bool active = local < planes && column0 < g.v.out;
  const Column columns[kPair] = {column_of(g.v, column0), column_of(g.v, column1)};
  const float* plane_weights = weights + local * t.w.plane;

  for (int step = 0; step < t.steps; ++step) {
    const int first_position = (step_group * t.steps + step) * t.runs * kRun;
    if (residue + first_position * g.h.reach >= g.h.in) break;
    for (int copy = 0; copy < g.multiplier; ++copy) {
      __syncthreads();
      if (step == 0 || g.multiplier > 1) {
        const auto channel_of = [&](int local) {
          int64_t n = first_plane + local;
          return int(g.by_in_channels.split(n)) * g.multiplier + copy;
        };
        stage_plane_weights<T>(g, t.w, planes, channel_of, weights);
        __syncthreads();
      }

      if (active) {
        const T* y = static_cast<const T*>(g.y) + column0 +
                     ((first_plane + local) * g.multiplier + copy) * (int64_t{g.h.out} * g.v.out);
        const int position0 = first_position + run * kRun;

        for (int block_v = 0; block_v < (kTaps < kPlaneTaps ? 1 : t.tap_blocks_v); ++block_v) {
          // Taps that do not exist collect a share that nobody reads.
          int tap_weights_at[kPair][kTaps];
#pragma unroll
          for (int v = 0; v < kPair; ++v) {
#pragma unroll
            for (int i = 0; i < kTaps; ++i) {
              const int tap = min(block_v * kTaps + i, max(columns[v].taps - 1, 0));
              tap_weights_at[v][i] = (columns[v].first + tap * g.v.step) * t.w.pitch;
            }
          }
          float acc[kTaps][kPair][kRun] = {};
          for (int phase = 0; phase < g.h.stride; ++phase) {
            if (g.h.phases[phase].taps == 0) continue;
            const Class rows = class_of(g.h, phase, g.h.phases[phase].offset, residue);
            const int row_count = class_size(g.h, rows.first_output);
            const float* phase_weights = plane_weights + phase * g.v.kernel * t.w.pitch;
            for (int block_h = 0; block_h < (kTaps < kPlaneTaps ? 1 : t.tap_blocks_h); ++block_h) {
              const int first_i = position0 - rows.base + block_h * kTaps;
              RawRows<T, kRun + kTaps - 1> raw;
              raw.template fetch<kPaired>(
                  y + int64_t{rows.first_output} * g.v.out + first_i * row_step, row_count, first_i,
                  row_step, column1 - column0, column1 < g.v.out);
              float window[kPair][kRun + kTaps - 1];
              raw.widen(window);
#pragma unroll
              for (int v = 0; v < kPair; ++v) {
#pragma unroll
                for (int i = 0; i < kTaps; ++i) {
                  float tap_weights[kTaps];
                  load_weights<kTaps>(phase_weights + tap_weights_at[v][i] + block_h * kTaps,
                                      tap_weights);
#pragma unroll
                  for (int j = 0; j < kTaps; ++j) {
#pragma unroll
                    for (int m = 0; m < kRun; ++m) {
                      acc[i][v][m] = fmaf(window[v][m + j], tap_weights[j], acc[i][v][m]);
                    }
                  }
                }
              }
            }
          }
#pragma unroll
          for (int v = 0; v < kPair; ++v) {
            const int column = v == 0 ? pair.first : pair.second;
            float* to = shares + local * plane_floats + block_v * kTaps * tap_floats +
                        (column / 2 + column % 2 * t.slots) * t.share_pitch + run * kRun;
#pragma unroll
            for (int i = 0; i < kTaps; ++i) {
              float4* share = reinterpret_cast<float4*>(to + i * tap_floats);
#pragma unroll
              for (int quad = 0; quad < kRun / 4; ++quad) {
                const float* a = acc[i][v] + quad * 4;
                const float4 before = copy == 0 ? make_float4(0, 0, 0, 0) : share[quad];
                share[quad] =
                    make_float4(before.x + a[0], before.y + a[1], before.z + a[2], before.w + a[3]);
              }
            }
          }
        }
      }
    }
    __syncthreads();

    const int quads = t.by_quads.divisor;
    for (int item = threadIdx.x; item < planes * quads * t.x_columns; item += blockDim.x) {
      const int line = t.by_x_columns.quotient(item), ix = x_column + item - line * t.x_columns;
      const int local = t.by_quads.quotient(line), quad = line - local * quads;
      if (ix >= g.v.in) continue;
      float4 sum = make_float4(0, 0, 0, 0);
      const float* from = shares + local * plane_floats + quad * 4;
      int column = ix * g.v.stride - g.v.near_pad;
      for (int left = g.v.kernel; left > 0; left -= g.v.step, from += tap_floats) {
        const int taps = min(left, g.v.step);
#pragma unroll 4
        for (int r = 0; r < taps; ++r, column += g.v.dilation) {
          if (unsigned(column) < unsigned(g.v.out)) {
            const int place = column - y_column;
            const float4 share = *reinterpret_cast<const float4*>(
                from + ((place >> 1) + (place & 1) * t.slots) * t.share_pitch);
            sum.x += share.x, sum.y += share.y, sum.z += share.z, sum.w += share.w;
          }
        }
      }
      const int64_t plane = first_plane + local;
      const float sums[4] = {sum.x, sum.y, sum.z, sum.w};
      T* x = static_cast<T*>(g.result) + plane * (int64_t{g.h.in} * g.v.in) + ix;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int iy = residue + (first_position + quad * 4 + i) * g.h.reach;
        if (iy < g.h.in) store(x + iy * g.v.in, sums[i]);
      }
      if (is_finite(sum.x + sum.y + sum.z + sum.w)) continue;
#pragma unroll 1
      for (int i = 0; i < 4; ++i) {
        const int iy = residue + (first_position + quad * 4 + i) * g.h.reach;
        if (iy >= g.h.in) break;
        const int64_t n = plane / g.in_channels;
        store(x + iy * g.v.in, exact_input<T>(g, n, int(plane - n * g.in_channels), iy, ix));
      }
    }
  }
}

}  // namespace convt2d::cuda::depthwise::planes
