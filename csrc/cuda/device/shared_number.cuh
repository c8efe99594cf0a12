// A number as it goes to global memory, to shared memory first.
#pragma once

#include <cstdint>

#include "cuda/device/async_copy.cuh"
#include "cuda/device/numeric.cuh"

namespace convt2d::cuda {

// Of 16 or 32 bits.
template <class T>
__device__ __forceinline__ void store_shared_number(uint32_t shared, T value) {
  if constexpr (sizeof(T) == 4) {
    store_shared_4(shared, __float_as_uint(value));
  } else {
    store_shared_2(shared, *reinterpret_cast<const unsigned short*>(&value));
  }
}
// The same of a sum.
template <class T>
__device__ __forceinline__ void narrow_to_shared(uint32_t shared, float sum) {
  store_shared_number(shared, Numeric<T>::narrow(sum));
}

}  // namespace convt2d::cuda
