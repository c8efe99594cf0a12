// The words every room shares. Plain C++17: no torch, no CUDA.
#pragma once

#include <cstdint>

// Small integer helpers are used by host and device alike; nvcc needs to be told.
#ifdef __CUDACC__
#define CONVT2D_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define CONVT2D_HOST_DEVICE inline
#endif

namespace convt2d {

enum class DType : int32_t { f16, bf16, f32, f64 };

// Forward writes y, grad_input writes x, grad_weight writes w (and the bias gradient).
enum class Direction : int32_t { fwd, grad_input, grad_weight };

// Memory order of a 4-D tensor. `strided` is everything else: slices, expanded or flipped views.
enum class Layout : int32_t { nchw, nhwc, strided };

// How fp32 operands may be multiplied. The values are those of the `precision` argument of the ops.
enum class Precision : int32_t { ieee = 0, tf32 = 1 };

constexpr int64_t element_size(DType dtype) {
  return dtype == DType::f64 ? 8 : dtype == DType::f32 ? 4 : 2;
}

// Of a sum: numeric.cuh's Accumulator.
constexpr int64_t accumulator_size(DType dtype) { return dtype == DType::f64 ? 8 : 4; }

const char* name(DType dtype);
const char* name(Direction direction);
const char* name(Layout layout);
const char* name(Precision precision);

}  // namespace convt2d
