// For sums that are added up again, product by product, because they came out NaN.
#pragma once

#include "cuda/device/numeric.cuh"

namespace convt2d::cuda {

// A number in memory as the tensor core multiplies it.
template <class M, class Index>
__device__ __forceinline__ float as_multiplied(const void* from, Index at) {
  using T = typename M::Element;
  const float value = Numeric<T>::widen(static_cast<const T*>(from)[at]);
  if constexpr (!M::kRounds) return value;
  return __uint_as_float(M::round(__float_as_uint(value)) & 0xffffe000u);
}

}  // namespace convt2d::cuda
