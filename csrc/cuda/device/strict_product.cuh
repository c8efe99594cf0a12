// Strict fp32 on Hopper's tensor cores, one operand in registers: a number is the sum of two that they take, so a product
// is three.
#pragma once

#include "cuda/device/mma.cuh"
#include "cuda/device/wgmma.cuh"

namespace convt2d::cuda {

// What the tensor core cuts off of a number.
__device__ __forceinline__ uint32_t cut_off(uint32_t word) {
  return MmaTF32::round(
      __float_as_uint(__uint_as_float(word) - __uint_as_float(word & 0xffffe000u)));
}

// sum += a * b over SLICES slices, for COUNT operands a of 64 rows, `high` + `low`. b lies in shared memory, `slice` x 16
// bytes from slice to slice and `rest` x 16 from its high parts to its low ones. The tensor core cuts digits off where it
// adds: the lesser products come first, while there is little to cut them off from, and ordinary additions join what is
// multiplied at once.
template <int WIDTH, int SLICES, int COUNT>
__device__ __forceinline__ void add_strict(float (&sum)[COUNT][WIDTH / 2],
                                           const uint32_t (&high)[SLICES][COUNT][4],
                                           const uint32_t (&low)[SLICES][COUNT][4], uint64_t b,
                                           uint32_t slice, uint32_t rest) {
  using Multiply = WgmmaPartial<WIDTH>;
  float part[COUNT][WIDTH / 2];
  wgmma_fence();
#pragma unroll
  for (int lesser = 1; lesser >= 0; --lesser)
#pragma unroll
    for (int s = 0; s < SLICES; ++s)
#pragma unroll
      for (int i = 0; i < COUNT; ++i) {
        const uint64_t here = advance(b, s * slice);
        if (lesser) {
          Multiply::add(part[i], low[s][i], here, s > 0);
          Multiply::add(part[i], high[s][i], advance(here, rest), true);
        } else {
          Multiply::add(part[i], high[s][i], here, true);
        }
      }
  wgmma_commit();
  wgmma_wait<0>();
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    finished(part[i]);
#pragma unroll
    for (int j = 0; j < WIDTH / 2; ++j) sum[i][j] += part[i][j];
  }
}

}  // namespace convt2d::cuda
