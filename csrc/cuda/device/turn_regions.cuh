// Words in shared memory that wgmma is to have as rows along K.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/mma.cuh"

namespace convt2d::cuda {

// A warp turns two regions in place, each of 8 channels x 32 rows of the operand: two at once, since loads take long.
//
//   before   [channel][128 B, swizzled]
//   after    [8 rows][even channels, odd ones][row][16 B]
//
// `row`: the byte in a line of what a lane turns. Strict fp32: what is left of each number goes `low` bytes behind it.
template <bool STRICT>
__device__ __forceinline__ void turn_regions(uint32_t regions, uint32_t low, uint32_t row) {
  constexpr int kChannels = 8, kLine = 128, kRegion = kChannels * kLine;
  const int lane = threadIdx.x % 32;
  const uint32_t to = lane / 8 * 256 + lane % 8 * 16;
  uint32_t word[2][kChannels];
#pragma unroll
  for (int r = 0; r < 2; ++r)
#pragma unroll
    for (int c = 0; c < kChannels; ++c)
      word[r][c] = load_shared_4(regions + r * kRegion + c * kLine + (row ^ c << 4));
  __syncwarp();
#pragma unroll
  for (int r = 0; r < 2; ++r)
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      uint32_t high[4], rest[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        high[i] = word[r][2 * i + odd];
        if constexpr (STRICT) MmaF32x3::split(high[i], high[i], rest[i]);
      }
      const uint32_t at = regions + r * kRegion + to + odd * kLine;
      store_shared_16(at, high);
      if constexpr (STRICT) store_shared_16(at + low, rest);
    }
}

}  // namespace convt2d::cuda
