// What a block works on, found without a division by a number that the compiler does not know: those are some thirty
// instructions each, which run once and are fetched from memory for that.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/device/index.cuh"

namespace convt2d::cuda {

// So many things shared out: the first shares have one more.
struct Shares {
  int32_t each = 0, more = 0;

  Shares() = default;
  Shares(int64_t things, int64_t shares)
      : each(static_cast<int32_t>(things / shares)), more(static_cast<int32_t>(things % shares)) {}

#if defined(__CUDACC__) || defined(CONVT2D_EMULATED)
  // Where a share begins, and the one before it ends.
  __device__ __forceinline__ int begin(int share) const { return share * each + min(share, more); }
#endif
};

#if defined(__CUDACC__) || defined(CONVT2D_EMULATED)
// Digits of a number below 2^31, the last one first.
struct Digits {
  uint32_t rest;
  __device__ __forceinline__ int next(FastDivide by) {
    const uint32_t whole = rest;
    rest = by.quotient(whole);
    return static_cast<int>(whole - rest * by.divisor);
  }
};
#endif

}  // namespace convt2d::cuda
