// Sums of partial sums, in an order that depends on nothing but the shape.
//
// One block adds up 32 neighbouring elements: eight threads each, every eighth piece a thread, in
// runs of eight; then the eight results pairwise.
#pragma once

#include "cuda/cuda_check.h"
#include "cuda/device/index.cuh"
#include "cuda/device/numeric.cuh"

namespace convt2d::cuda::direct {

struct ReduceParams {
  const void* partials;  // [pieces][elements]
  void* result;          // a 4-D view of `elements` elements
  int64_t elements, pieces;
  int64_t stride[4];
  FastDivide divide[3];  // extents of the view's axes 1, 2, 3
};

constexpr int kReduceLanes = 32;
constexpr int kReduceParts = 8;
constexpr int kReduceRun = 8;

template <typename T>
__global__ __launch_bounds__(kReduceLanes* kReduceParts) void convt2d_direct_reduce_kernel(
    const __grid_constant__ ReduceParams params) {
  using A = Accumulator<T>;
  __shared__ A parts[kReduceParts][kReduceLanes];
  const int lane = threadIdx.x % kReduceLanes, part = threadIdx.x / kReduceLanes;
  for (int64_t first = int64_t(blockIdx.x) * kReduceLanes; first < params.elements;
       first += int64_t(gridDim.x) * kReduceLanes) {
    const int64_t element = first + lane;
    A sum(0);
    if (element < params.elements) {
      const A* source = static_cast<const A*>(params.partials) + element;
      for (int64_t piece = part; piece < params.pieces; piece += kReduceParts * kReduceRun) {
        A run(0);
#pragma unroll
        for (int i = 0; i < kReduceRun; ++i) {
          const int64_t other = piece + i * kReduceParts;
          if (other < params.pieces) run += source[other * params.elements];
        }
        sum += run;
      }
    }
    parts[part][lane] = sum;
    __syncthreads();
    if (part == 0 && element < params.elements) {
      A joined[kReduceParts];
#pragma unroll
      for (int other = 0; other < kReduceParts; ++other) joined[other] = parts[other][lane];
#pragma unroll
      for (int half = kReduceParts / 2; half > 0; half /= 2) {
#pragma unroll
        for (int other = 0; other < half; ++other) joined[other] += joined[other + half];
      }
      sum = joined[0];
      int64_t rest = element, offset = 0;
#pragma unroll
      for (int axis = 3; axis > 0; --axis) {
        offset += params.divide[axis - 1].split(rest) * params.stride[axis];
      }
      store(static_cast<T*>(params.result) + offset + rest * params.stride[0], sum);
    }
    __syncthreads();
  }
}

template <typename T>
void launch_reduce(const ReduceParams& params, cudaStream_t stream) {
  constexpr int64_t most_blocks = INT32_MAX;
  const int64_t blocks = (params.elements + kReduceLanes - 1) / kReduceLanes;
  convt2d_direct_reduce_kernel<T>
      <<<static_cast<unsigned>(blocks < most_blocks ? blocks : most_blocks),
         kReduceLanes * kReduceParts, 0, stream>>>(params);
  check_launch("convt2d_direct_reduce_kernel");
}

}  // namespace convt2d::cuda::direct
