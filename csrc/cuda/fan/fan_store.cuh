// From sums to the result: biases, phases of a row side by side, the NaN rule.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/fan/fan_scope.cuh"

namespace convt2d::cuda::fan {

template <int TILE>
using Sums = float[kTiles[TILE].operands * phases(kTiles[TILE])][channels(kTiles[TILE]) / 2];

// Which of a tile's positions a lane holds: two of each operand.
template <int TILE>
__device__ __forceinline__ int position_of_lane(int row) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  return (warp / 4 * kTiles[TILE].operands + row / 2) * kRows + warp % 4 * 16 + row % 2 * 8 +
         lane / 4;
}
// Of a tile, packed: image, row, column; -1: none.
__device__ __forceinline__ void build_positions(const GatherParams& p, int count, uint32_t shared) {
  for (int i = threadIdx.x; i < count; i += kThreads) {
    const int line = i / p.tile_w, n = line / p.tile_h;
    const int packed = n << 20 | (line - n * p.tile_h) << 10 | (i - line * p.tile_w);
    store_shared_4(shared + kPositions + i * 4, n < p.tile_n ? packed : -1);
  }
}
template <int TILE>
__device__ __forceinline__ int packed_position(uint32_t shared, int row) {
  return load_shared_4(shared + kPositions + position_of_lane<TILE>(row) * 4);
}
__device__ __forceinline__ TileOrigin position_of(TileOrigin origin, int packed) {
  return {origin.n + (packed >> 20), origin.h + (packed >> 10 & 1023), origin.w + (packed & 1023)};
}

template <int TILE>
__device__ __noinline__ void repair(const GatherParams& p, const Scope& at, uint32_t shared,
                                    TileOrigin origin) {
  constexpr Tile tile = kTiles[TILE];
  const AxisGroup& gh = p.h.group[at.group_h];
  for (int row = 0; row < tile.operands * 2; ++row) {
    const int packed = packed_position<TILE>(shared, row);
    if (packed < 0) continue;
    const TileOrigin here = position_of(origin, packed);
    for (int channel = threadIdx.x % 4 * 2; channel < p.tile_channels;
         channel += channel % 2 ? kEight - 1 : 1) {
      const int column = at.column_tile * p.tile_channels + channel;
      if (column >= p.columns || here.n >= p.batch) break;
      for (int sh = 0; sh < gh.phases; ++sh)
        for (int sw = 0; sw < tile.w; ++sw) {
          const int y = here.h * p.h.destination_step + gh.first_phase + sh,
                    x = here.w * tile.w + sw;
          if (y >= p.h.destination_extent || x >= p.w.destination_extent) continue;
          float* const element = static_cast<float*>(p.destination) +
                                 here.n * p.destination_stride[0] +
                                 (at.group * p.columns + column) * p.destination_stride[1] +
                                 y * p.destination_stride[2] + x;
          repair_nan(&p, element, at.group_h, 0, at.group, column, sh, sw, here);
        }
    }
  }
}

// What is beside a position in its row: so many outputs from its first one on, and whether the positions before and after
// it are with the lanes four below and above.
struct Beside {
  int left;
  bool before, after;
};

// Neighbours in a row of the result, whose first is at `to`, if `key` is not negative. They are one store where rows are
// whole runs of them. Of two in rows of an odd length every other row starts between two aligned ones: there a lane
// stores its second with the first of the next position.
template <int COUNT>
__device__ __forceinline__ void store_neighbours(float* to, const float (&value)[COUNT], int key,
                                                 const Beside& beside, bool whole) {
  const auto word = [&](int i) { return __float_as_uint(value[i]); };
  const auto if_so = [&](bool so) { return so ? key : -1; };
  if constexpr (COUNT == 2) {
    if (whole) return store_words_if<2>(key, to, word(0), word(1), 0, 0);
    const uint32_t next = __shfl_sync(0xffffffff, word(0), (threadIdx.x + 4) % 32);
    const bool odd = reinterpret_cast<uintptr_t>(to) & 4, two = beside.left > 1;
    store_words_if<2>(if_so(odd ? beside.after : two), to + odd, odd ? word(1) : word(0),
                      odd ? next : word(1), 0, 0);
    store_words_if<1>(if_so(odd ? !beside.before : !two), to, word(0), 0, 0, 0);
    store_words_if<1>(if_so(odd && two && !beside.after), to + 1, word(1), 0, 0, 0);
  } else if (COUNT == 4 && whole) {
    store_words_if<4>(key, to, word(0), word(1 % COUNT), word(2 % COUNT), word(3 % COUNT));
  } else {
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
      store_words_if<1>(if_so(i < beside.left), to + i, word(i), 0, 0, 0);
  }
}

// Straight on from channel to channel: sums leave few registers for addresses.
template <int TILE>
__device__ __forceinline__ void store(const GatherParams& p, uint32_t shared, int number,
                                      const Sums<TILE>& sum) {
  constexpr Tile tile = kTiles[TILE];
  const Scope at = known_scope(shared + kScope);
  const TileOrigin origin = tile_origin(p, number);
  const int lane_channel = threadIdx.x % 4 * 2, step = p.destination_stride[1];
  const bool whole = p.destination_stride[2] % tile.w == 0;
  float nan = 0;
#pragma unroll
  for (int row = 0; row < tile.operands * 2; ++row) {
    const int packed = packed_position<TILE>(shared, row);
    const TileOrigin here = position_of(origin, packed);
    const int y = here.h * p.h.destination_step + p.h.group[at.group_h].first_phase,
              x = here.w * tile.w;
    const int left_w = packed < 0 || here.n >= p.batch ? 0 : p.w.destination_extent - x;
    const int column = packed & 1023, lane_row = threadIdx.x % 32 / 4;
    const Beside beside = {left_w, lane_row > 0 && column > 0,
                           lane_row < 7 && column + 1 < p.tile_w && left_w > tile.w};
    const int left_h =
        left_w <= 0 ? 0 : min(int(p.h.group[at.group_h].phases), p.h.destination_extent - y);
    float* to = static_cast<float*>(p.destination) + here.n * p.destination_stride[0] +
                (at.group * p.columns + at.column_tile * p.tile_channels + lane_channel) * step +
                y * p.destination_stride[2] + x;
    int left = p.columns - at.column_tile * p.tile_channels - lane_channel;
    uint32_t bias = shared + kBiases + lane_channel * 4;
#pragma unroll
    for (int eight = 0; eight < channels(tile) / kEight; ++eight)
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        const float more = load_shared<float>(bias);
#pragma unroll
        for (int sh = 0; sh < tile.h; ++sh) {
          float value[tile.w];
#pragma unroll
          for (int sw = 0; sw < tile.w; ++sw) {
            value[sw] =
                sum[row / 2 * phases(tile) + sh * tile.w + sw][eight * 4 + row % 2 * 2 + odd] +
                more;
            nan = fmaf(value[sw], 0.f, nan);
          }
          store_neighbours(to + sh * p.destination_stride[2], value,
                           left > 0 && sh < left_h ? 0 : -1, beside, whole);
        }
        const int next = odd ? kEight - 1 : 1;
        to += int64_t{next} * step;
        bias += next * 4;
        left -= next;
      }
  }
  // A lane repairs what it summed, which another may have stored.
  if (__any_sync(0xffffffff, nan != nan)) {
    __syncwarp();
    repair<TILE>(p, at, shared, origin);
  }
}

}  // namespace convt2d::cuda::fan
