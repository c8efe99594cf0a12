// From sums to the result: biases, phases of a row side by side, the NaN rule.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/loom/loom_scope.cuh"

namespace convt2d::cuda::loom {

template <int TILE>
using Sums = float[kTiles[TILE].phases][positions(kTiles[TILE]) / 2];

// The channels of a lane, of those of its group: this and the eighth after it.
__device__ __forceinline__ int channel_of_lane(const GatherParams& p, const Scope& at) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  return at.column_tile * p.tile_channels + (same_positions(p) ? warp / 4 * kRows : 0) +
         warp % 4 * 16 + lane / 4;
}
// Where a tile's positions of a lane are, two neighbours of every eight.
template <int TILE>
__device__ __forceinline__ uint32_t positions_of_lane(uint32_t shared) {
  return shared + kPositions +
         (threadIdx.x / 128 * positions(kTiles[TILE]) + threadIdx.x % 4 * 2) * 4;
}

template <class T, int TILE>
__device__ __noinline__ void repair(const GatherParams& p, const Scope& at, uint32_t shared,
                                    TileOrigin origin) {
  constexpr Tile tile = kTiles[TILE];
  const AxisGroup& gh = p.h.group[at.group_h];
  for (int i = 0; i < positions(tile) / 4; ++i) {
    const int packed =
        load_shared_4(positions_of_lane<TILE>(shared) + (i / 2 * kEight + i % 2) * 4);
    if (packed < 0) continue;
    const TileOrigin here = position_of(origin, packed);
    const int y = here.h * p.h.destination_step + gh.first_phase;
    if (here.n >= p.batch || y >= p.h.destination_extent) continue;
    for (int row = 0; row < 2; ++row) {
      const int channel = channel_of_lane(p, at) + row * 8;
      if (channel >= p.columns) continue;
      for (int phase = 0; phase < tile.phases; ++phase) {
        const int x = here.w * tile.phases + phase;
        if (x >= p.w.destination_extent) continue;
        T* const element = static_cast<T*>(p.destination) + here.n * p.destination_stride[0] +
                           (at.group * p.columns + channel) * p.destination_stride[1] +
                           y * p.destination_stride[2] + x;
        repair_nan(&p, element, at.group_h, 0, at.group, channel, 0, phase, here);
      }
    }
  }
}

// The first `count` of neighbours in a row of the result, the first of which is number `index` of the tensor, up to
// multiples of p.store_words.
template <int COUNT>
__device__ __forceinline__ void store_neighbours(const GatherParams& p, float* to, int index,
                                                 const float (&value)[COUNT], int count) {
  const auto word = [&](int i) { return __float_as_uint(value[i]); };
  if (COUNT == 4 && count == 4 && p.store_words == 4 && index % 4 == 0) {
    store_words(to, word(0), word(1), word(2 % COUNT), word(3 % COUNT));
    return;
  }
#pragma unroll
  for (int i = 0; i < COUNT; i += 2) {
    const bool two = p.store_words > 1 && index % 2 == 0 && count > i + 1;
    store_words_if<2>(two ? 0 : -1, to + i, word(i), word(i + 1), 0, 0);
    store_words_if<1>(!two && count > i ? 0 : -1, to + i, word(i), 0, 0, 0);
    store_words_if<1>(!two && count > i + 1 ? 0 : -1, to + i + 1, word(i + 1), 0, 0, 0);
  }
}

template <class T, int TILE>
__device__ __forceinline__ void store(const GatherParams& p, uint32_t shared, int number,
                                      const Sums<TILE>& sum) {
  constexpr Tile tile = kTiles[TILE];
  constexpr int kPhases = tile.phases;
  constexpr bool kByTurns = tile.taps > 1 && kPhases > 1;
  const Scope at = known_scope(shared);
  const TileOrigin origin = tile_origin(p, number);
  const int channel = channel_of_lane(p, at), first_y = p.h.group[at.group_h].first_phase;
  T* const plane =
      static_cast<T*>(p.destination) + (at.group * p.columns + channel) * p.destination_stride[1];
  float bias[2] = {};
#pragma unroll
  for (int row = 0; row < 2; ++row)
    if (p.bias && channel + row * 8 < p.columns)
      bias[row] = load(static_cast<const T*>(p.bias) + at.group * p.columns + channel + row * 8);
  float nan = 0;
  // Outputs of a position from the first phase on, in its row; 0: none at all.
  const auto left_of = [&](int packed, TileOrigin here, int y) {
    const bool there = packed >= 0 && here.n < p.batch && y < p.h.destination_extent;
    return there ? p.w.destination_extent - here.w * kPhases : 0;
  };
  uint32_t table = positions_of_lane<TILE>(shared);
#pragma unroll
  for (int i = 0; i < positions(tile) / kEight; ++i, table += kEight * 4) {
    uint32_t packed[2];
    load_shared_8(table, packed);
    const bool joint = packed[1] == packed[0] + 1;
    const auto store_some = [&](int packed_first, auto first_of_pair, auto count_of_pair) {
      constexpr int kFirst = decltype(first_of_pair)::value,
                    kCount = decltype(count_of_pair)::value;
      const TileOrigin here = position_of(origin, packed_first);
      const int y = here.h * p.h.destination_step + first_y;
      const int index =
          here.n * p.destination_stride[0] + y * p.destination_stride[2] + here.w * kPhases;
      const int left = left_of(packed_first, here, y);
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        float value[kCount * kPhases < 2 ? 2 : kCount * kPhases] = {};
        const int count = channel + row * 8 < p.columns
                              ? min(left, joint || kCount == 1 ? kCount * kPhases : kPhases)
                              : 0;
#pragma unroll
        for (int k = 0; k < kCount * kPhases; ++k) {
          const int at_pair = 4 * i + 2 * row + kFirst + k / kPhases;
          float one = sum[k % kPhases][at_pair];
          if (kByTurns && p.swapped) one = sum[1 - k % kPhases][at_pair];
          value[k] = one + bias[row];
          nan = add_zero_times_if(count - 1 - k, value[k], nan);
        }
        store_neighbours(p, plane + index + row * 8 * p.destination_stride[1], index, value, count);
      }
    };
    store_some(int(packed[0]), std::integral_constant<int, 0>(), std::integral_constant<int, 2>());
    // The pixels of a run go on in the next row.
    if (!joint && int(packed[1]) >= 0)
      store_some(int(packed[1]), std::integral_constant<int, 1>(),
                 std::integral_constant<int, 1>());
  }
  if (__any_sync(0xffffffff, nan != nan)) {
    __syncwarp();
    repair<T, TILE>(p, at, shared, origin);
  }
}

}  // namespace convt2d::cuda::loom
