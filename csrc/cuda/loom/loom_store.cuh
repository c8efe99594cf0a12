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
  return at.column_tile * p.tile_channels + (p.tile_channels > kRows ? warp / 4 * kRows : 0) +
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
    const int y = here.h * p.h.destination_step + gh.first_phase + row_phase(p);
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
        repair_nan(&p, element, at.group_h, 0, at.group, channel, row_phase(p), phase, here);
      }
    }
  }
}

// COUNT neighbours at a multiple of their size, or one, if `key` is not negative.
template <class T, int COUNT>
__device__ __forceinline__ void store_together_if(int key, T* to, const float* value) {
  constexpr int kWordCount = COUNT * int(sizeof(T)) / 4;
  const auto word = [&](int i) {
    if constexpr (sizeof(T) == 4)
      return __float_as_uint(value[i % kWordCount]);
    else
      return pack<T>(value[i % kWordCount * 2], value[i % kWordCount * 2 + 1]);
  };
  store_words_if<kWordCount>(key, to, word(0), word(1), word(2), word(3));
}
template <class T>
__device__ __forceinline__ void store_one_if(int key, T* to, float value) {
  if constexpr (sizeof(T) == 4)
    store_words_if<1>(key, to, __float_as_uint(value), 0, 0, 0);
  else
    store_half_if(key, to, static_cast<unsigned short>(pack<T>(value, 0)));
}

// So many of a run of neighbours in a row of the result as there are, where those of a lane start at multiples of COUNT.
template <class T, int COUNT>
__device__ __forceinline__ void store_run(T* to, const float (&value)[COUNT], int count) {
  store_together_if<T, COUNT>(count - COUNT, to, value);
  if (count < COUNT)
#pragma unroll
    for (int i = 0; i < COUNT - 1; ++i) store_one_if(count - 1 - i, to + i, value[i]);
}

// The same where they start anywhere: a lane stores those from the first multiple of COUNT on, with the first ones of the
// next lane, of which there are `next`. `taken`: the lane before may store the first ones of this one.
template <class T, int COUNT>
__device__ __forceinline__ void store_shifted(T* to, const float (&value)[COUNT],
                                              const float (&more)[COUNT - 1], int count, int next,
                                              bool taken) {
  const int lead = -(reinterpret_cast<uintptr_t>(to) / sizeof(T)) & (COUNT - 1);
  const bool joined = count == COUNT && next >= lead, headed = taken && count >= lead;
  float all[2 * COUNT - 1];
#pragma unroll
  for (int i = 0; i < 2 * COUNT - 1; ++i)
    all[i] = i < COUNT ? value[i % COUNT] : more[i < COUNT ? 0 : i - COUNT];
#pragma unroll
  for (int by = 1; by < COUNT; by *= 2)
#pragma unroll
    for (int i = 0; i < 2 * COUNT - 1 - by; ++i) all[i] = lead & by ? all[i + by] : all[i];
  store_together_if<T, COUNT>(joined ? 0 : -1, to + lead, all);
  if (joined && (headed || lead == 0)) return;
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    const bool mine = i < count && !(i < lead ? headed : joined);
    store_one_if(mine ? 0 : -1, to + i, value[i]);
  }
}

// Two neighbouring positions of every eight are a lane's.
template <class T, int TILE, bool SHIFTED>
__device__ __forceinline__ void store(const GatherParams& p, uint32_t shared, int number,
                                      const Sums<TILE>& sum) {
  constexpr int kPhases = kTiles[TILE].phases, kCount = 2 * kPhases,
                kEights = positions(kTiles[TILE]) / kEight;
  constexpr bool kByTurns = kTiles[TILE].taps > 1 && kPhases > 1;
  const Scope at = known_scope(shared + kScope);
  const TileOrigin origin = tile_origin(p, number);
  const int channel = channel_of_lane(p, at),
            first_y = p.h.group[at.group_h].first_phase + row_phase(p), quarter = threadIdx.x % 4;
  T* const plane =
      static_cast<T*>(p.destination) + (at.group * p.columns + channel) * p.destination_stride[1];
  float bias[2] = {};
#pragma unroll
  for (int row = 0; row < 2; ++row)
    if (p.bias && channel + row * 8 < p.columns)
      bias[row] = load(static_cast<const T*>(p.bias) + at.group * p.columns + channel + row * 8);
  float nan = 0;
  const auto value_of = [&](int eight, int row, int k) {
    float value = sum[k % kPhases][4 * eight + 2 * row + k / kPhases];
    if (kByTurns && p.swapped) value = sum[(k + 1) % kPhases][4 * eight + 2 * row + k / kPhases];
    return value + bias[row];
  };
  uint32_t table = positions_of_lane<TILE>(shared);
#pragma unroll
  for (int eight = 0; eight < kEights; ++eight, table += kEight * 4) {
    uint32_t own[2];
    load_shared_8(table, own);
    const int first = own[0], last = own[1];
    const TileOrigin here = position_of(origin, first);
    const int y = here.h * p.h.destination_step + first_y, x = here.w * kPhases;
    const bool there = first >= 0 && here.n < p.batch && y < p.h.destination_extent;
    const int left = there ? p.w.destination_extent - x : 0,
              count = min(left, last >= 0 ? kCount : kPhases);
    const int index = here.n * p.destination_stride[0] + y * p.destination_stride[2] + x;
    // What the lanes beside this one have of the same row.
    int next = 0;
    bool taken = false;
    if constexpr (SHIFTED) {
      uint32_t before = 0, after[2] = {};
      if (eight > 0 || quarter > 0) before = load_shared_4(table - 4);
      if (eight < kEights - 1 || quarter < 3) load_shared_8(table + 8, after);
      taken = first > 0 && int(before) == first - 1;
      if (last >= 0 && int(after[0]) == last + 1)
        next = min(left - kCount, int(after[1]) >= 0 ? kCount : kPhases);
    }
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      T* const to = plane + index + row * 8 * p.destination_stride[1];
      const bool wanted = channel + row * 8 < p.columns;
      float value[kCount], all = 0;
#pragma unroll
      for (int k = 0; k < kCount; ++k) value[k] = value_of(eight, row, k), all += value[k];
      nan = add_zero_times_if(wanted ? count - 1 : -1, all, nan);
      if constexpr (SHIFTED) {
        float more[kCount - 1];
#pragma unroll
        for (int k = 0; k < kCount - 1; ++k) {
          const float shown = quarter == 0 && eight < kEights - 1
                                  ? value_of((eight + 1) % kEights, row, k)
                                  : value[k];
          more[k] = __shfl_sync(0xffffffff, shown, threadIdx.x % 32 / 4 * 4 + (quarter + 1) % 4);
        }
        store_shifted<T>(to, value, more, wanted ? count : 0, wanted ? next : 0, taken);
      } else {
        store_run<T>(to, value, wanted ? count : 0);
      }
    }
  }
  // A lane repairs what it summed, which another may have stored.
  if (__any_sync(0xffffffff, nan != nan)) {
    __syncwarp();
    repair<T, TILE>(p, at, shared, origin);
  }
}

}  // namespace convt2d::cuda::loom
