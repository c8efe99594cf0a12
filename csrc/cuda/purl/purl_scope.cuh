// What a block of purl works on, and where a lane finds its words of dY.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/uniform.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/purl/purl_config.h"

namespace convt2d::cuda::purl {

// A tile: its first image, row and column of x, and channel, of the group's.
struct Item {
  int image, row, column, group, channel;
};
// Items side by side have the same pixels. A block's have the same channels, if weights stay: its items are as far apart as
// there are combinations of group and channels.
template <int WIDTH>
__device__ __forceinline__ Item item_of(const Params& p, int index) {
  unsigned rest = index, next = p.by_blocks.quotient(rest);
  Item item;
  item.channel = int(rest - next * p.by_blocks.divisor) * WIDTH;
  rest = next, next = p.by_groups.quotient(rest);
  item.group = int(rest - next * p.by_groups.divisor);
  rest = next, next = p.by_strips.quotient(rest);
  item.column = int(rest - next * p.by_strips.divisor) * p.own;
  const unsigned image = p.by_bands.quotient(next);
  item.row = int(next - image * p.by_bands.divisor) * p.rows;
  item.image = int(image) * p.images;
  return item;
}

// Of a tile's pixels, in the order of image, row, column.
__device__ __forceinline__ Pixel pixel_of(const Params& p, int index) {
  const unsigned line = p.by_own.quotient(index), image = p.by_rows.quotient(line);
  return {int(image), int(line - image * p.by_rows.divisor), int(index - line * p.by_own.divisor)};
}

// Where a lane's words are in a stage: rows g and g + 8 of its warp's, words t and t + 4 of each step of K. Where they are ODD,
// that of their second halves.
template <class T, bool ODD>
struct Words {
  uint32_t pixel[2], mask[2];
  uint32_t word[kSteps][2];

  __device__ __forceinline__ Words(const Params& p) {
    constexpr int kNumbers = 4 / sizeof(T);  // of a word
    const int lane = threadIdx.x % 32, t = lane % 4, of_row = p.kernel_w / kNumbers;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int index = warp_of_block() * 16 + lane / 4 + 8 * i;
      const Pixel at = pixel_of(p, index < p.pixels ? index : 0);  // what is no pixel is not stored
      pixel[i] = pixel_place(p, at, sizeof(T));
      mask[i] = ~0u;
      const int column = at.column * p.stride_w - p.pad_w + t % of_row * kNumbers;
#pragma unroll
      for (int number = 0; number < kNumbers; ++number)
        if (p.masked && (column + number < 0 || column + number >= p.y_w))
          mask[i] &= kNumbers == 1 ? 0u : 0xffff0000u >> 16 * number;
    }
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        word[step][half] =
            word_place(p, step * kStepWords + half * 4 + t, sizeof(T)) + (ODD ? 2 : 0);
  }

  // What the tensor core wants of a batch of steps.
  template <int BATCH>
  __device__ __forceinline__ void fetch(uint32_t (&to)[kBatch][4], uint32_t stage) const {
#pragma unroll
    for (int step = 0; step < kBatch; ++step)
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const uint32_t from = stage + pixel[i] + word[BATCH * kBatch + step][half];
          uint32_t both = load_shared_4(from);
          if constexpr (ODD) both = __byte_perm(load_shared_4(from - 4), both, 0x5432);
          to[step][half * 2 + i] = both & mask[i];
        }
#pragma unroll
    for (int step = 0; step < kBatch; ++step) computed(to[step]);
  }
};

}  // namespace convt2d::cuda::purl
