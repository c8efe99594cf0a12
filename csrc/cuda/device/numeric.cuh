// What a kernel must know about an element type: how to read it, what to add it up in, how to write it.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "core/types.h"

namespace convt2d::cuda {

// `Accumulator` is fp32 for everything but fp64. Products are formed and summed in it; `narrow`
// rounds once, to nearest even, when a result is stored.
template <typename T>
struct Numeric;

template <>
struct Numeric<__half> {
  using Accumulator = float;
  static __device__ __forceinline__ float widen(__half value) { return __half2float(value); }
  static __device__ __forceinline__ __half narrow(float value) { return __float2half_rn(value); }
};

template <>
struct Numeric<__nv_bfloat16> {
  using Accumulator = float;
  static __device__ __forceinline__ float widen(__nv_bfloat16 value) {
    return __bfloat162float(value);
  }
  static __device__ __forceinline__ __nv_bfloat16 narrow(float value) {
    return __float2bfloat16_rn(value);
  }
};

template <>
struct Numeric<float> {
  using Accumulator = float;
  static __device__ __forceinline__ float widen(float value) { return value; }
  static __device__ __forceinline__ float narrow(float value) { return value; }
};

template <>
struct Numeric<double> {
  using Accumulator = double;
  static __device__ __forceinline__ double widen(double value) { return value; }
  static __device__ __forceinline__ double narrow(double value) { return value; }
};

template <typename T>
using Accumulator = typename Numeric<T>::Accumulator;

// Read-only load of one element, already widened.
template <typename T>
__device__ __forceinline__ Accumulator<T> load(const T* pointer) {
  return Numeric<T>::widen(__ldg(pointer));
}

template <typename T>
__device__ __forceinline__ void store(T* pointer, Accumulator<T> value) {
  *pointer = Numeric<T>::narrow(value);
}

// Sixteen bytes of consecutive accumulators: one shared-memory access.
template <typename A>
struct alignas(16) Vector {
  static constexpr int size = 16 / sizeof(A);
  A value[size];
};

template <typename T>
constexpr DType dtype_of = DType::f32;
template <>
constexpr DType dtype_of<__half> = DType::f16;
template <>
constexpr DType dtype_of<__nv_bfloat16> = DType::bf16;
template <>
constexpr DType dtype_of<double> = DType::f64;

// Calls visit(T{}) with the C++ type of a DType.
template <typename Visitor>
auto visit_dtype(DType dtype, Visitor&& visit) {
  switch (dtype) {
    case DType::f16:
      return visit(__half{});
    case DType::bf16:
      return visit(__nv_bfloat16{});
    case DType::f32:
      return visit(float{});
    default:
      return visit(double{});
  }
}

}  // namespace convt2d::cuda
