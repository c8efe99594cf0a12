// Of NCHW, what both ways to multiply need: where a block works, and where a warp's outputs belong.
#pragma once

#include <type_traits>

#include "cuda/device/digits.cuh"
#include "cuda/rows/rows_operands.cuh"

namespace convt2d::cuda::rows {

struct Place {
  int n, h, w;        // image, first position
  int group, column;  // first channel within the group
  int channels;       // that exist
};

// Of a tile and channels, which come first: a block that steps by multiples of `parts` keeps its own.
__device__ __forceinline__ Place place_of(const Params& p, int tile) {
  Digits number{tile};
  Place at;
  at.column = number.next(p.column_tiles) * kChannels;
  at.group = number.next(p.groups);
  at.w = number.next(p.tiles_w) * p.tile_width;
  at.h = number.next(p.tiles_h) * p.tile_rows;
  at.n = number.rest;
  at.channels = min(kChannels, p.columns - at.column);
  return at;
}

__device__ __forceinline__ float bias_of(const Params& p, uint32_t shared, int channel) {
  return load_shared<float>(shared + p.bias_at + channel * 4);
}
// Where a buffer has the first output of a channel: as far from a multiple of a line as in memory.
template <class T>
__device__ __forceinline__ uint32_t staged_row(const Params& p, uint32_t staging, uint32_t element,
                                               int channel) {
  const uint32_t lead = (element + channel * uint32_t(p.h.out * p.w.out)) % kLine<T>;
  return staging + channel * p.staging_pitch + lead * sizeof(T);
}

constexpr int kTiles = kChunk / 8;  // of positions

// What a warp multiplies: some phases of w of a row, for pixels from its first position's on. `pair` is where their steps
// begin, or of strict fp32 their readings. Where the row that it is part of begins in memory, its buffer, and the place of
// the first output there.
struct Work {
  int pair;
  uint32_t pixels;
  uint32_t element, staging;
  int output;
};

// Calls visit(std::integral_constant<int, count>) for a count up to MOST.
template <int MOST, class Visit>
__device__ __forceinline__ void visit_count(int count, Visit&& visit) {
  if constexpr (MOST > 1)
    if (count < MOST) return visit_count<MOST - 1>(count, visit);
  visit(std::integral_constant<int, MOST>());
}

// Sums of 16 channels x 32 positions x some phases to a buffer. A lane has channels lane / 4 and 8 more, and of eight positions
// those at lane % 4 * 2. If these phases are all, what a lane has of eight positions are neighbours: stored two by two, where a
// pair begins at a multiple of its size.
template <class T, int PHASES>
__device__ __forceinline__ void stage_sums(const Params& p, const Work& work,
                                           const float (*sum)[kTiles][4]) {
  constexpr int kSize = sizeof(T), kOutputs = 2 * PHASES;
  const int lane = threadIdx.x % 32;
  uint32_t to[2];
#pragma unroll
  for (int half = 0; half < 2; ++half)
    to[half] = staged_row<T>(p, work.staging, work.element, lane / 4 + 8 * half) +
               (work.output + lane % 4 * 2 * p.w.stride) * kSize;
  const auto visit = [&](auto&& use) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int i = 0; i < kTiles; ++i)
        use(to[half], i,
            [&](int output) { return sum[output % PHASES][i][2 * half + output / PHASES]; });
  };
  const auto one = [](uint32_t place, float value) { narrow_to_shared<T>(place, value); };
  const auto pair = [](uint32_t place, float low, float high) {
    if constexpr (kSize == 2) {
      store_shared_4(place, pack<T>(low, high));
    } else {
      store_shared_sums(place, low, high);
    }
  };
  if (p.w.stride != PHASES) {
    visit([&](uint32_t row, int i, auto&& output) {
#pragma unroll
      for (int k = 0; k < kOutputs; ++k)
        one(row + ((8 * i + k / PHASES) * p.w.stride + k % PHASES) * kSize, output(k));
    });
  } else if (to[0] % (2 * kSize) == 0) {  // so is the other: planes lie eight planes apart
    visit([&](uint32_t row, int i, auto&& output) {
#pragma unroll
      for (int k = 0; k < kOutputs; k += 2)
        pair(row + (8 * i * PHASES + k) * kSize, output(k), output(k + 1));
    });
  } else {
    visit([&](uint32_t row, int i, auto&& output) {
      const uint32_t first = row + 8 * i * PHASES * kSize;
      one(first, output(0));
#pragma unroll
      for (int k = 1; k < kOutputs - 1; k += 2) pair(first + k * kSize, output(k), output(k + 1));
      one(first + (kOutputs - 1) * kSize, output(kOutputs - 1));
    });
  }
}

}  // namespace convt2d::cuda::rows
