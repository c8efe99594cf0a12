// Where a block of plait's kernel is, and where eights of positions are.
#pragma once

#include "cuda/plait/plait_config.h"

namespace convt2d::cuda::plait {

// The channels of a block, and which of the blocks with the same channels it is. Neighbouring blocks read the same of dY.
struct Scope {
  int group, column_tile, walker;
};
__device__ __forceinline__ Scope scope_of(const Params& p) {
  const int rest = blockIdx.x / p.column_tiles;
  return {rest % p.groups, static_cast<int>(blockIdx.x) % p.column_tiles, rest / p.groups};
}

// The image, row and first column of an eight; the strip, and the segment: of images and their strips, which.
struct Eight {
  int n, h, w, strip, segment;

  __device__ __forceinline__ bool there(const Params& p) const { return n < p.batch; }
};
__device__ __forceinline__ Eight eight_of(const Params& p, int number) {
  const int row = int(p.by_strip_eights.quotient(uint32_t(number)));
  const int strip = int(p.by_x_h.quotient(uint32_t(row)));
  const int n = int(p.by_strips.quotient(uint32_t(strip)));
  const int rest = number - row * p.strip_eights,
            beside = int(p.by_row_eights.quotient(uint32_t(rest)));
  return {n * p.beside + beside, row - strip * p.x_h,
          (rest - beside * p.row_eights + (strip - n * p.strips) * p.strip_eights) * kEight, strip,
          strip * p.beside + beside};
}

}  // namespace convt2d::cuda::plait
