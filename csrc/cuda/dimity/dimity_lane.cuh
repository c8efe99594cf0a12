// A lane's numbers of rows of x and dY, from shared memory to operands of the tensor core.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/dimity/dimity_config.h"

namespace convt2d::cuda::dimity {

// Registers of so many numbers: of 16 bits two to a word.
template <class T>
CONVT2D_HOST_DEVICE constexpr int words_of(int numbers) {
  return sizeof(T) == 4 ? numbers : (numbers + 1) / 2;
}
// Of four pixels, slices of K of an instruction: two words each.
template <class T>
constexpr int kSlices = sizeof(T) == 4 ? 2 : 1;

// NUMBERS neighbours, from any place on.
template <class T, int NUMBERS>
__device__ __forceinline__ void fetch_neighbours(uint32_t (&word)[words_of<T>(NUMBERS)],
                                                 uint32_t from) {
  if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int i = 0; i < NUMBERS; ++i) word[i] = load_shared_4(from + i * 4);
  } else {
    constexpr int kWords = NUMBERS / 2 + 1;  // that they may lie in
    uint32_t raw[kWords];
#pragma unroll
    for (int i = 0; i < kWords; ++i) raw[i] = load_shared_4((from & ~3u) + i * 4);
    const uint32_t select = from & 2 ? 0x5432 : 0x3210;
#pragma unroll
    for (int i = 0; i < words_of<T>(NUMBERS); ++i)
      word[i] = __byte_perm(raw[i], raw[min(i + 1, kWords - 1)], select);
  }
}

// A lane's pixels of a row of x. `whole`: it starts at 16 bytes.
template <class T>
__device__ __forceinline__ void fetch_pixels(uint32_t (&word)[words_of<T>(kLanePixels)],
                                             uint32_t from, bool whole) {
  if (!whole) {
    fetch_neighbours<T, kLanePixels>(word, from);
  } else if constexpr (sizeof(T) == 4) {
    load_shared_16(from, word);
  } else {
    load_shared_8(from, word);
  }
}

// Of a row of dY, what a lane's pixels and all taps meet in.
template <class T, int ROW>
__device__ __forceinline__ void fetch_numbers(
    const Params& p, uint32_t (&word)[words_of<T>(lane_numbers(kTiles[ROW]))], uint32_t from) {
  constexpr Tile tile = kTiles[ROW];
  if constexpr (tile.stride != kAny) {
    fetch_neighbours<T, lane_numbers(tile)>(word, from);
  } else {
#pragma unroll
    for (int tap = 0; tap < tile.taps_w; ++tap)
#pragma unroll
      for (int pixel = 0; pixel < kLanePixels; pixel += 4 / int(sizeof(T))) {
        const uint32_t first = from + (tap * p.dilation_w + pixel * p.stride_w) * int(sizeof(T));
        uint32_t& to = word[words_of<T>(lane_number(tile, tap, pixel))];
        if constexpr (sizeof(T) == 4) {
          to = load_shared_4(first);
        } else {
          to = __byte_perm(load_shared<unsigned short>(first),
                           load_shared<unsigned short>(first + p.stride_w * 2), 0x5410);
        }
      }
  }
}
// The column of such a number, from the first one on.
template <int ROW>
__device__ __forceinline__ int column_of(const Params& p, int number) {
  return kTiles[ROW].stride != kAny
             ? number
             : number / kLanePixels * p.dilation_w + number % kLanePixels * p.stride_w;
}

// What is beside a row becomes zeros: there(number) tells.
template <class T, int WORDS, class There>
__device__ __forceinline__ void keep_if(uint32_t (&word)[WORDS], There&& there) {
#pragma unroll
  for (int i = 0; i < WORDS; ++i) {
    if constexpr (sizeof(T) == 4) {
      word[i] = there(i) ? word[i] : 0;
    } else {
      word[i] &= (there(2 * i) ? 0xffffu : 0) | (there(2 * i + 1) ? 0xffff0000u : 0);
    }
  }
}

// Two numbers as a word.
template <int WORDS>
__device__ __forceinline__ uint32_t pair_of(const uint32_t (&word)[WORDS], int first, int second) {
  if (first % 2 == 0 && second == first + 1) return word[first / 2];
  return __byte_perm(word[first / 2], word[second / 2],
                     (first % 2 ? 0x32 : 0x10) | (second % 2 ? 0x7600 : 0x5400));
}

// What the tensor core multiplies of a lane's numbers of dY, channels g and g + 8.
template <class T, int ROW>
struct Operands {
  static constexpr Tile kTile = kTiles[ROW];
  uint32_t word[kTile.taps_w][kSlices<T>][4];

  template <int WORDS>
  __device__ __forceinline__ void take(const uint32_t (&number)[2][WORDS]) {
#pragma unroll
    for (int tap = 0; tap < kTile.taps_w; ++tap)
#pragma unroll
      for (int slice = 0; slice < kSlices<T>; ++slice)
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          const uint32_t (&from)[WORDS] = number[w % 2];
          if constexpr (sizeof(T) == 4) {
            word[tap][slice][w] = from[lane_number(kTile, tap, slice * 2 + w / 2)];
          } else {
            word[tap][slice][w] = pair_of(from, lane_number(kTile, tap, w / 2 * 2),
                                          lane_number(kTile, tap, w / 2 * 2 + 1));
          }
        }
  }
};

// sum += products of a kernel row's taps and four pixels of a lane.
template <class M, int ROW, class O = Operands<typename M::Element, ROW>>
__device__ __forceinline__ void multiply_row(
    float (&sum)[kTiles[ROW].taps_w][4], const O& y, const O& low_y,
    const uint32_t (&x)[2 * kSlices<typename M::Element>],
    const uint32_t (&low_x)[2 * kSlices<typename M::Element>]) {
  constexpr int kTaps = kTiles[ROW].taps_w, kEach = kSlices<typename M::Element>;
  const auto add = [&](float (&to)[kTaps][4], const O& a, const uint32_t (&b)[2 * kEach],
                       int slice) {
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap)
      M::mma(to[tap], a.word[tap][slice], b[slice * 2], b[slice * 2 + 1]);
  };
  if constexpr (M::kSplit) {
    // The lesser products come first, while there is little to cut digits off from, and an ordinary addition last.
    float part[kTaps][4] = {};
#pragma unroll
    for (int slice = 0; slice < kEach; ++slice) add(part, low_y, x, slice);
#pragma unroll
    for (int slice = 0; slice < kEach; ++slice) add(part, y, low_x, slice);
#pragma unroll
    for (int slice = 0; slice < kEach; ++slice) add(part, y, x, slice);
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap)
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[tap][e] += part[tap][e];
  } else {
#pragma unroll
    for (int slice = 0; slice < kEach; ++slice) add(sum, y, x, slice);
  }
}

}  // namespace convt2d::cuda::dimity
