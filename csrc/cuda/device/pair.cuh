// Two neighbours on their way to global memory.
#pragma once

#include "cuda/device/memory.cuh"
#include "cuda/device/mma.cuh"

namespace convt2d::cuda {

// As one word, or two in 32 bits, at a multiple of their size.
template <class T>
__device__ __forceinline__ void store_pair(T* to, float first, float second) {
  if constexpr (sizeof(T) == 4) {
    store_words(to, __float_as_uint(first), __float_as_uint(second));
  } else {
    *reinterpret_cast<uint32_t*>(to) = pack<T>(first, second);
  }
}

}  // namespace convt2d::cuda
