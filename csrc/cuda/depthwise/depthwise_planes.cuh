// NCHW building blocks: staging of w and x, the columns of a thread, and access to pairs of y.
#pragma once

#include "cuda/depthwise/depthwise_common.cuh"
#include "cuda/depthwise/depthwise_planes.h"

namespace convt2d::cuda::depthwise {

// Taps of some planes in shared memory, [plane][phase of a row][column of w][tap block * taps]: what a
// thread needs for one column of w is one vector. Taps that do not exist are zero. The last float of a
// plane is its bias. Returns whether this thread saw only finite weights.
template <typename T, typename ChannelOf>
__device__ bool stage_plane_weights(const Geometry& g, const StagedWeights& staged, int planes,
                                    ChannelOf channel_of, float* weights) {
  bool finite = true;
  for (int index = threadIdx.x; index < planes * staged.plane; index += blockDim.x) {
    const int local = staged.by_plane.quotient(index), place = index - local * staged.plane;
    const int line = staged.by_pitch.quotient(place), j = place - line * staged.pitch;
    const int phase = staged.by_kernel_v.quotient(line), column = line - phase * g.v.kernel;
    const int co = channel_of(local), c = g.by_multiplier.quotient(co);
    float value = 0;
    if (phase < g.h.stride && j < g.h.phases[phase].taps) {
      value = load(
          static_cast<const T*>(g.w) + c * g.w_stride[0] + (co - c * g.multiplier) * g.w_stride[1] +
          (g.h.phases[phase].first + j * g.h.step) * g.w_stride[2] + column * g.w_stride[3]);
      finite &= is_finite(value);
    } else if (place == staged.plane - 1 && g.bias) {
      value = load(static_cast<const T*>(g.bias) + co);
    }
    weights[index] = value;
  }
  return finite;
}

// x of some planes -> tiles[plane][column][position]. `first_row` is the input row of position 0; rows
// and columns outside x become zeros. A thread keeps its pair of columns and moves squares of 2 columns
// by 4 positions down the tile, two at a time so that enough loads are in flight.
template <typename T, bool kPaired, typename PlaneOf>
__device__ __forceinline__ void stage_squares(const Geometry& g, const StagedX& staged, int planes,
                                              PlaneOf plane_of, int first_row, int first_column,
                                              float* tiles) {
  constexpr int kBatch = 2;
  const int across = staged.by_across.divisor;
  const int line0 = staged.by_across.quotient(threadIdx.x), down = kThreads / across;
  const int lines = planes * staged.quads;
  if (line0 >= down) return;
  for (int pair = threadIdx.x - line0 * across; pair < staged.columns / kPair; pair += across) {
    const int column = kPair * pair;
    // The zero columns are beyond what the tile may read of x, or beyond x.
    const bool first = column < staged.columns - kPair && first_column + column < g.v.in;
    const bool second = first && first_column + column + 1 < g.v.in;
    const T* x_column = static_cast<const T*>(g.x) + first_column + column;
    for (int start = line0; start < lines; start += kBatch * down) {
      Pair<T> value[kBatch][4];
      float* to[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const int line = min(start + b * down, lines - 1);
        const int local = staged.by_quads.quotient(line), quad = line - local * staged.quads;
        to[b] = tiles + (local * staged.columns + column) * staged.pitch + quad * 4;
        const int row0 = first_row + quad * 4 * g.h.reach;
        const T* x =
            x_column + plane_of(local) * (int64_t{g.h.in} * g.v.in) + int64_t{row0} * g.v.in;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const bool row = unsigned(row0 + i * g.h.reach) < unsigned(g.h.in);
          value[b][i] = load_pair<T, kPaired>(x, 1, first && row, second && row);
          x += g.h.reach * g.v.in;
        }
      }
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const float2 row[4] = {value[b][0].widen(), value[b][1].widen(), value[b][2].widen(),
                               value[b][3].widen()};
        *reinterpret_cast<float4*>(to[b]) = make_float4(row[0].x, row[1].x, row[2].x, row[3].x);
        *reinterpret_cast<float4*>(to[b] + staged.pitch) =
            make_float4(row[0].y, row[1].y, row[2].y, row[3].y);
      }
    }
  }
}

template <typename T, typename PlaneOf>
__device__ __forceinline__ void stage_x(const Geometry& g, const StagedX& staged, bool paired,
                                        int planes, PlaneOf plane_of, int first_row,
                                        int first_column, float* tiles) {
  if (paired) {
    stage_squares<T, true>(g, staged, planes, plane_of, first_row, first_column, tiles);
  } else {
    stage_squares<T, false>(g, staged, planes, plane_of, first_row, first_column, tiles);
  }
}

// First x column that a tile of y from `column` on may read, even and not below 0.
__device__ __forceinline__ int first_x_column(const ClassAxis& v, int column) {
  const int reach = column + v.near_pad - (v.kernel - 1) * v.dilation;
  return max(0, -floor_quotient(-reach, v.stride)) & ~1;
}

// One y column of a thread.
struct Column {
  int input;  // x column of its first tap; tap t reads input - t * reach
  int first, taps;
};

__device__ __forceinline__ Column column_of(const ClassAxis& v, int column) {
  const int q = v.by_stride.quotient(column);
  const Phase phase = v.phases[column - q * v.stride];
  return {q + phase.offset, phase.first, column < v.out ? phase.taps : 0};
}

// A row of kTaps weights: one access.
template <int kTaps>
__device__ __forceinline__ void load_weights(const float* from, float (&weights)[kTaps]) {
  if constexpr (kTaps == 1) {
    weights[0] = *from;
  } else if constexpr (kTaps == 2) {
    const float2 pair = *reinterpret_cast<const float2*>(from);
    weights[0] = pair.x, weights[1] = pair.y;
  } else {
    const float4 quad = *reinterpret_cast<const float4*>(from);
    weights[0] = quad.x, weights[1] = quad.y, weights[2] = quad.z;
    if constexpr (kTaps == 4) weights[3] = quad.w;
  }
}

// The positions that a run reads through one tap block.
template <int kCount>
__device__ __forceinline__ void load_window(const float* from, float (&window)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; i += 4) {
    const float4 quad = *reinterpret_cast<const float4*>(from + i);
    window[i] = quad.x;
    if (i + 1 < kCount) window[i + 1] = quad.y;
    if (i + 2 < kCount) window[i + 2] = quad.z;
    if (i + 3 < kCount) window[i + 3] = quad.w;
  }
}

// The two columns of a slot: neighbours where rows allow access to both at once, else half a tile
// apart, so that a warp still covers whole sectors.
struct ColumnPair {
  int first, second;
};

template <bool kPaired>
__device__ __forceinline__ ColumnPair column_pair(int slots, int slot) {
  return kPaired ? ColumnPair{2 * slot, 2 * slot + 1} : ColumnPair{slot, slot + slots};
}

// Rows of one class of y in two columns, as they come from memory.
template <typename T, int kCount>
struct RawRows {
  Pair<T> row[kCount];

  // `y` is row `first_i`. Rows outside [0, rows) count as zero.
  template <bool kPaired>
  __device__ __forceinline__ void fetch(const T* y, int rows, int first_i, int64_t row_step,
                                        int second, bool has_second) {
#pragma unroll
    for (int u = 0; u < kCount; ++u) {
      const bool inside = unsigned(first_i + u) < unsigned(rows);
      row[u] = load_pair<T, kPaired>(y, second, inside, inside && has_second);
      y += row_step;
    }
  }

  __device__ __forceinline__ void widen(float (&window)[kPair][kCount]) const {
#pragma unroll
    for (int u = 0; u < kCount; ++u) {
      const float2 both = row[u].widen();
      window[0][u] = both.x, window[1][u] = both.y;
    }
  }
};

}  // namespace convt2d::cuda::depthwise
