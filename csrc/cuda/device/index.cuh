// Division by a number known before the launch: a multiply and a shift instead of a long routine.
#pragma once

#include <cstdint>

#include "core/types.h"

namespace convt2d::cuda {

// Exact for divisors in [1, 2^31). Dividends below 2^31 take the fast way, larger ones the long one.
struct FastDivide {
  uint32_t divisor = 1;
  uint32_t magic = 1;
  uint32_t shift = 0;

  FastDivide() = default;

  CONVT2D_HOST_DEVICE explicit FastDivide(int64_t by) : divisor(static_cast<uint32_t>(by)) {
    while ((uint64_t{1} << shift) < divisor) ++shift;
    const uint64_t excess = (uint64_t{1} << shift) - divisor;
    magic = static_cast<uint32_t>((excess << 32) / divisor + 1);
  }

#if defined(__CUDACC__) || defined(CONVT2D_EMULATED)
  __device__ __forceinline__ uint32_t quotient(uint32_t dividend) const {  // dividend < 2^31
    return (__umulhi(dividend, magic) + dividend) >> shift;
  }

  // Replaces `dividend` by its quotient and returns the remainder. dividend >= 0.
  __device__ __forceinline__ uint32_t split(int64_t& dividend) const {
    const int64_t whole = dividend;
    if (whole >> 31 == 0) {
      dividend = quotient(static_cast<uint32_t>(whole));
    } else {
      dividend = static_cast<int64_t>(static_cast<uint64_t>(whole) / divisor);
    }
    return static_cast<uint32_t>(whole - dividend * divisor);
  }
#endif
};

}  // namespace convt2d::cuda
