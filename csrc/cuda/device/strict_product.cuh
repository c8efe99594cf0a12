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

// A number as the sum of two: of the lower one the tensor core cuts off one digit at most.
__device__ __forceinline__ void split_in_two(uint32_t word, uint32_t& high, uint32_t& low) {
  high = (word + 0x1000u) & 0xffffe000u;
  low = __float_as_uint(__uint_as_float(word) - __uint_as_float(high));
}

// Starts COUNT products a * b, the ith of which adds to part[i % PARTS]. high(i) + low(i) are words of a, 64 rows; b(i) is
// an operand in shared memory, `rest` x 16 bytes from its high parts to its low ones. The tensor core cuts digits off where
// it adds: the lesser products come first, while there is little to cut them off from, and ordinary additions join parts.
template <int WIDTH, int COUNT, int PARTS, class High, class Low, class Operand>
__device__ __forceinline__ void start_strict(float (&part)[PARTS][WIDTH / 2], High&& high,
                                             Low&& low, Operand&& b, uint32_t rest) {
  using Multiply = WgmmaPartial<WIDTH>;
  wgmma_fence();
#pragma unroll
  for (int lesser = 1; lesser >= 0; --lesser)
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      const uint64_t here = b(i);
      if (lesser) {
        Multiply::add(part[i % PARTS], low(i), here, i >= PARTS);
        Multiply::add(part[i % PARTS], high(i), advance(here, rest), true);
      } else {
        Multiply::add(part[i % PARTS], high(i), here, true);
      }
    }
  wgmma_commit();
}
template <int COUNT>
__device__ __forceinline__ void join_part(float (&sum)[COUNT], float (&part)[COUNT]) {
  finished(part);
#pragma unroll
  for (int i = 0; i < COUNT; ++i) sum[i] += part[i];
}

// sum += a * b over SLICES slices, for COUNT operands a of 64 rows, `high` + `low`. b lies in shared memory, `slice` x 16
// bytes from slice to slice and `rest` x 16 from its high parts to its low ones.
template <int WIDTH, int SLICES, int COUNT>
__device__ __forceinline__ void add_strict(float (&sum)[COUNT][WIDTH / 2],
                                           const uint32_t (&high)[SLICES][COUNT][4],
                                           const uint32_t (&low)[SLICES][COUNT][4], uint64_t b,
                                           uint32_t slice, uint32_t rest) {
  using Words = const uint32_t (&)[4];
  float part[COUNT][WIDTH / 2];
  start_strict<WIDTH, SLICES * COUNT>(
      part, [&](int i) -> Words { return high[i / COUNT][i % COUNT]; },
      [&](int i) -> Words { return low[i / COUNT][i % COUNT]; },
      [&](int i) { return advance(b, i / COUNT * slice); }, rest);
  wgmma_wait<0>();
#pragma unroll
  for (int i = 0; i < COUNT; ++i) join_part(sum[i], part[i]);
}

}  // namespace convt2d::cuda
