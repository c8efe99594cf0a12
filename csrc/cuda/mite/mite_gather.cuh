// mite, forward and grad_input; see mite_config.h.
#pragma once

#include "cuda/gather_device.cuh"
#include "cuda/mite/mite_config.h"
#include "cuda/mite/mite_fill.cuh"

namespace convt2d::cuda::mite {

#ifdef CONVT2D_EMULATED
extern float4 shared[];
#else
extern __shared__ float4 shared[];
#endif

// What a block works on: an image, a group, some channels of it, a tile of positions.
struct GatherTile {
  int n, group, first_channel, columns, first_h, first_w;
};

__device__ __forceinline__ GatherTile gather_tile(const GatherParams& p) {
  const int block = blockIdx.x;
  const int tiles_h = p.by_tiles_w.quotient(block);
  const int images = p.by_tiles_h.quotient(tiles_h);
  const int tiles = p.by_batch.quotient(images);
  GatherTile tile;
  tile.first_w = (block - tiles_h * int(p.by_tiles_w.divisor)) * p.tile_w;
  tile.first_h = (tiles_h - images * int(p.by_tiles_h.divisor)) * p.tile_h;
  tile.n = images - tiles * int(p.by_batch.divisor);
  tile.group = p.by_column_tiles.quotient(tiles);
  tile.first_channel = (tiles - tile.group * int(p.by_column_tiles.divisor)) * p.tile_columns;
  tile.columns = min(p.tile_columns, p.columns - tile.first_channel);
  return tile;
}

struct TapPlace {
  int phase, slot;
};
__device__ __forceinline__ TapPlace tap_place(const GatherParams& p, int tap) {
  const int number = tap * p.taps.scale + p.taps.shift;
  const int quotient = p.taps.by_step.quotient(number);
  return {number - quotient * int(p.taps.by_step.divisor),
          p.taps.first_slot + p.taps.slot_sign * quotient};
}

// Channel and phase of a column.
struct Column {
  int channel, phase;
};
__device__ __forceinline__ Column column_at(const GatherParams& p, int column) {
  const int high = p.by_place.quotient(column), low = column - high * int(p.by_place.divisor);
  return p.run_channels ? Column{low, high} : Column{high, low};
}

// One sum again, of products that exist alone: patch and table have zeros elsewhere, and zero times infinity is NaN.
// `row` and `column` are those of the source that the patch's number `at` is for; bias aside.
__device__ __noinline__ float sum_again(const GatherParams* params, const float* patch,
                                        const float* table, int columns, int at, int row,
                                        int column, int phase_h, int place) {
  const GatherParams& p = *params;
  const int phase_w = column_at(p, place).phase;
  const RowWalk walk = p.walk[phase_h];
  float sum = 0;
#pragma unroll 1
  for (int j = 0; j < walk.taps; ++j) {
    const int down = walk.first_row + j * p.row_step;
    if (unsigned(row + down) >= unsigned(p.patch.rows)) continue;
    const int tap_h = walk.first_tap + j * p.tap_step;
#pragma unroll 1
    for (int tap = 0; tap < p.kernel_w; ++tap) {
      const TapPlace tap_w = tap_place(p, tap);
      const int right = tap_w.slot * p.slot_step;
      if (tap_w.phase != phase_w || unsigned(column + right) >= unsigned(p.patch.columns)) continue;
#pragma unroll 1
      for (int c = 0; c < p.depth; ++c)
        sum += patch[at + c * p.patch.plane + down * p.patch.pitch + right] *
               table[((tap_h * p.depth + c) * p.slots + tap_w.slot) * columns + place];
    }
  }
  return sum;
}

template <int COLUMNS>
__device__ __forceinline__ void load_columns(const float* from, float (&to)[COLUMNS]) {
  if constexpr (COLUMNS % 4 == 0) {
#pragma unroll
    for (int i = 0; i < COLUMNS / 4; ++i) {
      const float4 four = reinterpret_cast<const float4*>(from)[i];
      to[4 * i] = four.x, to[4 * i + 1] = four.y, to[4 * i + 2] = four.z, to[4 * i + 3] = four.w;
    }
  } else if constexpr (COLUMNS == 2) {
    const float2 two = *reinterpret_cast<const float2*>(from);
    to[0] = two.x, to[1] = two.y;
  } else {
    to[0] = from[0];
  }
}

// All products of some positions in a phase of rows. SLOTS of a row at once, or one, whatever lies between them.
template <int SLOTS, int COLUMNS>
__device__ __forceinline__ void add_up(const GatherParams& p, const RowWalk& walk,
                                       const float* patch, const float* table,
                                       const int (&at)[kPositions],
                                       float (&sum)[kPositions][COLUMNS]) {
  constexpr int TOGETHER = SLOTS ? SLOTS : 1;
  const int row_floats = p.depth * p.slots * COLUMNS;
  const float* row = patch + walk.first_row * p.patch.pitch;
  const float* weights = table + walk.first_tap * row_floats;
#pragma unroll 1
  for (int j = 0; j < walk.taps; ++j) {
    const float *from = row, *weight = weights;
#pragma unroll 1
    for (int c = 0; c < p.depth; ++c) {
      const float* pixel = from;
#pragma unroll 1
      for (int slot = 0; slot < (SLOTS ? 1 : p.slots); ++slot) {
        float factor[TOGETHER][COLUMNS], value[TOGETHER][kPositions];
#pragma unroll
        for (int s = 0; s < TOGETHER; ++s) {
          load_columns(weight + s * COLUMNS, factor[s]);
#pragma unroll
          for (int i = 0; i < kPositions; ++i) value[s][i] = pixel[at[i] + s];
        }
#pragma unroll
        for (int s = 0; s < TOGETHER; ++s)
#pragma unroll
          for (int i = 0; i < kPositions; ++i)
#pragma unroll
            for (int k = 0; k < COLUMNS; ++k) sum[i][k] += value[s][i] * factor[s][k];
        pixel += p.slot_step;
        weight += TOGETHER * COLUMNS;
      }
      from += p.patch.plane;
    }
    row += p.row_step * p.patch.pitch;
    weights += p.tap_step * row_floats;
  }
}

template <class T, int RUN>
__device__ __forceinline__ void store_whole(T* to, const float (&value)[RUN]) {
  if constexpr (RUN * sizeof(T) > 16) {
    constexpr int PIECE = 16 / sizeof(T);
#pragma unroll
    for (int i = 0; i < RUN; i += PIECE) {
      float piece[PIECE];
#pragma unroll
      for (int k = 0; k < PIECE; ++k) piece[k] = value[i + k];
      store_run(to + i, piece);
    }
  } else if constexpr (RUN * sizeof(T) >= 4) {
    store_run(to, value);
  } else {
    store(to, value[0]);
  }
}

// Zeros into the table, weights and the patch on their way and into shared memory.
template <class T, int COLUMNS>
__device__ __forceinline__ void fill(const GatherParams& p, const GatherTile& tile, float* patch) {
  float* const table = patch + p.table_at;
  // Weights: one kernel after the other, as they mostly lie.
  float weight[kWeights];
  int place[kWeights];
#pragma unroll
  for (int i = 0; i < kWeights; ++i) {
    place[i] = -1, weight[i] = 0;
    if (i * kThreads >= p.weights) continue;
    const int index = threadIdx.x + i * kThreads;
    const int row = p.by_kernel_w.quotient(index), tap = index - row * p.kernel_w;
    const int pair = p.by_kernel_h.quotient(row), tap_h = row - pair * p.kernel_h;
    const int c = p.by_tile_columns.quotient(pair), channel = pair - c * p.tile_columns;
    const TapPlace tap_w = tap_place(p, tap);
    if (index < p.weights && channel < tile.columns && tap_w.phase < p.phases_w) {
      place[i] = ((tap_h * p.depth + c) * p.slots + tap_w.slot) * COLUMNS +
                 channel * p.place_channel + tap_w.phase * p.place_phase;
      weight[i] = load(static_cast<const T*>(p.weight) + tile.group * p.weight_group +
                       c * p.weight_reduce + (tile.first_channel + channel) * p.weight_column +
                       tap_h * p.weight_h + tap * p.weight_w);
    }
  }
  float bias = 0;
  if (p.bias && threadIdx.x < COLUMNS) {
    const int channel = column_at(p, threadIdx.x).channel;
    if (channel < tile.columns)
      bias = load(static_cast<const T*>(p.bias) + tile.group * p.columns + tile.first_channel +
                  channel);
  }
#pragma unroll 1
  for (int i = threadIdx.x; i < p.bias_at - p.table_at; i += kThreads) table[i] = 0;
  if (threadIdx.x < COLUMNS) patch[p.bias_at + threadIdx.x] = bias;
  fill_patch<kFill, T>(p.patch, tile.n, tile.group, tile.first_h * p.source_step_h + p.first_row,
                       tile.first_w * p.source_step_w + p.first_column, threadIdx.x, kThreads,
                       patch);
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kWeights; ++i)
    if (place[i] >= 0) table[place[i]] = weight[i];
  __syncthreads();
}

template <class T, int RUNS, int RUN>
__global__ void __launch_bounds__(kThreads, blocks_beside(RUNS* RUN))
    convt2d_mite_gather_kernel(const __grid_constant__ GatherParams p) {
  constexpr int COLUMNS = RUNS * RUN;
  float* const patch = reinterpret_cast<float*>(shared);
  const GatherTile tile = gather_tile(p);
  fill<T, COLUMNS>(p, tile, patch);
  const float* const table = patch + p.table_at;

  int position_h[kPositions], position_w[kPositions], at[kPositions];
#pragma unroll
  for (int i = 0; i < kPositions; ++i) {
    const int index = threadIdx.x + i * kThreads;
    int down = p.by_tile_w.quotient(index);
    const int right = index - down * p.tile_w;
    position_h[i] = tile.first_h + down;
    position_w[i] = tile.first_w + right;
    if (down >= p.tile_h) {  // no such position: any numbers will do
      down = 0;
      position_h[i] = p.positions_h;
    }
    at[i] = down * p.source_step_h * p.patch.pitch + right * p.source_step_w;
  }

#pragma unroll 1
  for (int phase_h = 0; phase_h < p.phases_h; ++phase_h) {
    const RowWalk walk = p.walk[phase_h];
    float sum[kPositions][COLUMNS] = {};
    // Slots that are neighbours in one go, if there are three or four, or one after the other.
    bool done = false;
    if constexpr (COLUMNS <= 8) {
      done = p.slot_step == 1 && (p.slots == 3 || p.slots == 4);
      if (done && p.slots == 3) {
        add_up<3>(p, walk, patch, table, at, sum);
      } else if (done) {
        add_up<4>(p, walk, patch, table, at, sum);
      }
    }
    if (!done) add_up<0>(p, walk, patch, table, at, sum);

#pragma unroll
    for (int i = 0; i < kPositions; ++i) {
      bool nan = false;
#pragma unroll
      for (int k = 0; k < COLUMNS; ++k) nan |= sum[i][k] != sum[i][k];
      const int y = position_h[i] * p.destination_step_h + phase_h,
                x = position_w[i] * p.destination_step_w;
      const int phases = min(p.phases_w, p.destination_columns - x);
      if (position_h[i] >= p.positions_h || y >= p.destination_rows || phases <= 0) continue;
      const int runs = p.run_channels ? (p.run_phases ? 1 : phases) : tile.columns;
      const int run = (p.run_channels ? tile.columns : 1) * (p.run_phases ? phases : 1);
      T* const to = static_cast<T*>(p.destination) + tile.n * p.destination_n +
                    (tile.group * p.columns + tile.first_channel) * p.destination_c +
                    y * p.destination_h + x * p.destination_w;
#pragma unroll
      for (int r = 0; r < RUNS; ++r) {
        if (r >= runs) break;
        float value[RUN];
        T* const there = to + r * p.run_stride;
#pragma unroll
        for (int k = 0; k < RUN; ++k)
          value[k] = sum[i][r * RUN + k] + patch[p.bias_at + r * RUN + k];
        if (p.whole_runs && run == RUN) {
          store_whole(there, value);
        } else {
#pragma unroll
          for (int k = 0; k < RUN; ++k)
            if (k < run) store(there + k, value[k]);
        }
      }
      if (nan) {
#pragma unroll 1
        for (int k = 0; k < COLUMNS; ++k) {
          if (k / RUN >= runs || k % RUN >= run) continue;
          const float again = sum_again(
              &p, patch, table, COLUMNS, at[i], position_h[i] * p.source_step_h + p.first_row,
              position_w[i] * p.source_step_w + p.first_column, phase_h, k);
          store(to + k / RUN * p.run_stride + k % RUN, again + patch[p.bias_at + k]);
        }
      }
    }
  }
}

}  // namespace convt2d::cuda::mite
