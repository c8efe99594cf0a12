// From sums to rows of y, and the NaN rule.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/memory.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/device/uniform.cuh"
#include "cuda/gauze/gauze_config.h"

namespace convt2d::cuda::gauze {

// By phase, 2 a + b.
template <int TILE>
using Sums = float[kPhases][kTiles[TILE].channels / 2];

// A tile: its image, first row and column of x, and first channel out, of the group's.
struct Item {
  int image, row, column, group, channel;
};
// Items side by side have the same pixels. A block's have the same weights: they are as far apart as there are
// combinations of group and channels.
template <int TILE>
__device__ __forceinline__ Item item_of(const Params& p, int index) {
  unsigned rest = index, next = p.by_blocks.quotient(rest);
  Item item;
  item.channel = int(rest - next * p.by_blocks.divisor) * kTiles[TILE].channels;
  rest = next, next = p.by_groups.quotient(rest);
  item.group = int(rest - next * p.by_groups.divisor);
  rest = next, next = p.by_strips.quotient(rest);
  item.column = int(rest - next * p.by_strips.divisor) * p.width;
  item.image = int(p.by_bands.quotient(next));
  item.row = int(next - item.image * p.by_bands.divisor) * p.rows;
  return item;
}

// A lane's pixel, the first of two, from its tile's first.
struct Pixel {
  int row, column;
};
__device__ __forceinline__ Pixel pixel_of(const Params& p) {
  const int place = warp_of_block() % 4 * kWarpPixels, row = place * p.team_rows / kTeamPixels;
  return {warpgroup_of_block() * p.team_rows + row,
          place - row * p.width + int(threadIdx.x % 32 / 4 * 2)};
}

// Four neighbours of a row of y, if `key` is not negative; adds zero times each to `probe`.
template <class T>
__device__ __forceinline__ void store_neighbours(int key, T* to, float a, float b, float c, float d,
                                                 uint32_t& probe) {
  if constexpr (sizeof(T) == 2) {
    const uint32_t first = pack<T>(a, b), second = pack<T>(c, d);
    store_words_if<2>(key, to, first, second, 0, 0);
    probe = add_zero_times_pair<T>(first, add_zero_times_pair<T>(second, probe));
  } else {
    store_words_if<4>(key, to, __float_as_uint(a), __float_as_uint(b), __float_as_uint(c),
                      __float_as_uint(d));
    float sum = __uint_as_float(probe);
    for (float value : {a, b, c, d}) sum = fmaf(0.f, value, sum);
    probe = __float_as_uint(sum);
  }
}
template <class T>
__device__ __forceinline__ bool is_nan(uint32_t probe) {
  float all;
  if constexpr (sizeof(T) == 2) {
    all = add_pair<T>(probe);
  } else {
    all = __uint_as_float(probe);
  }
  return all != all;
}

template <class T, int TILE>
__device__ __forceinline__ void store_tile(const Params& p, const Sums<TILE>& sum, const Item& item,
                                           uint32_t& probe) {
  const Pixel pixel = pixel_of(p);
  const int h = (item.row + pixel.row) * kStride, v = (item.column + pixel.column) * kStride,
            plane = p.y_h * p.y_w, first = item.channel + threadIdx.x % 4 * 2;
  T* to = static_cast<T*>(p.y) +
          ((int64_t{item.image} * p.groups + item.group) * p.columns + first) * plane + h * p.y_w +
          v;
  // The last of a lane's channels from its first one, in either row of y; none if that is not there.
  int last[kStride];
#pragma unroll
  for (int a = 0; a < kStride; ++a)
    last[a] = h + a < p.y_h && v < p.y_w ? p.columns - first - 1 : -1;
#pragma unroll
  for (int channel = 0; channel < kTiles[TILE].channels; channel += 8)
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      const int i = channel / 2 + odd;
#pragma unroll
      for (int a = 0; a < kStride; ++a) {
        const auto &even = sum[2 * a], &uneven = sum[2 * a + 1];
        store_neighbours(last[a] - channel - odd, to + (channel + odd) * plane + a * p.y_w, even[i],
                         uneven[i], even[i + 2], uneven[i + 2], probe);
      }
    }
}

// Taps beside x multiply zeros, which makes NaN of a weight that is not finite. What came out NaN of it is summed again without
// these. All of a block's outputs are there.
template <class T, int TILE>
__device__ __noinline__ void repair(const Params& p) {
  constexpr Tile tile = kTiles[TILE];
  const int x_plane = p.x_h * p.x_w, width = p.width * kStride, outputs = p.rows * kStride * width;
  for (int i = blockIdx.x; i < p.items; i += p.walkers) {
    const Item item = item_of<TILE>(p, i);
    for (int k = threadIdx.x; k < tile.channels * outputs; k += consumers(tile)) {
      const int channel = item.channel + k / outputs, h = item.row * kStride + k % outputs / width,
                v = item.column * kStride + k % width;
      if (channel >= p.columns || h >= p.y_h || v >= p.y_w) continue;
      if (h > 0 && h < p.x_h * kStride - 1 && v > 0 && v < p.y_w - 1)
        continue;  // all taps are there
      const int64_t plane = int64_t{item.image} * p.groups + item.group;
      T* const to = static_cast<T*>(p.y) + ((plane * p.columns + channel) * p.y_h + h) * p.y_w + v;
      const float value = Numeric<T>::widen(*to);
      if (value == value) continue;
      const T* const x = static_cast<const T*>(p.x) + plane * p.reduce * x_plane;
      const T* const w = static_cast<const T*>(p.w) +
                         (int64_t{item.group} * p.reduce * p.columns + channel) * taps(tile);
      float sum =
          p.bias ? load(static_cast<const T*>(p.bias) + item.group * p.columns + channel) : 0.f;
      for (int tap = 0; tap < taps(tile); ++tap) {
        const int row = h + kPad - tap / tile.kernel, column = v + kPad - tap % tile.kernel;
        if (row % kStride != 0 || row < 0 || row / kStride >= p.x_h) continue;
        if (column % kStride != 0 || column < 0 || column / kStride >= p.x_w) continue;
        const int pixel = row / kStride * p.x_w + column / kStride;
        for (int in = 0; in < p.reduce; ++in)
          sum += load(x + in * x_plane + pixel) * load(w + in * p.columns * taps(tile) + tap);
      }
      *to = Numeric<T>::narrow(sum);
    }
  }
}

}  // namespace convt2d::cuda::gauze
