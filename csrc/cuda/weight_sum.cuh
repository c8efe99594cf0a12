// Sums of partial sums, in an order that depends on nothing but the shape.
//
// A thread has four neighbouring elements of every PARTS-th piece, the threads of a block some neighbours and all
// parts; the parts are added pairwise.
#pragma once

#include "cuda/cuda_check.h"
#include "cuda/device/index.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/device/successor.cuh"

namespace convt2d::cuda {

struct WeightSumParams {
  const float* partials;  // [pieces][kh][kw][ci][co], see weight_bytes()
  void* weight;
  int32_t elements, piece_quads, pieces;
  int32_t parts;         // a power of two
  int32_t stride[4];     // of the weight: ci, co, kh, kw
  FastDivide divide[3];  // co, ci, kw
  int32_t neighbours;    // four elements with the same ci and tap lie side by side in the weight
};

constexpr int kSumThreads = 256, kMostParts = 16;

template <class T>
__global__ void __launch_bounds__(kSumThreads)
    convt2d_weight_sum_kernel(const __grid_constant__ WeightSumParams p) {
  __shared__ float4 parts[kSumThreads];
  const int lanes = kSumThreads / p.parts;
  const int lane = threadIdx.x % lanes, part = threadIdx.x / lanes;
  const int quad = blockIdx.x * lanes + lane;
  wait_for_predecessor();
  float4 sum = make_float4(0, 0, 0, 0);
  const auto add = [&](const float4& other) {
    sum.x += other.x, sum.y += other.y, sum.z += other.z, sum.w += other.w;
  };
  if (quad < p.piece_quads) {
    const float4* from = reinterpret_cast<const float4*>(p.partials) + quad;
#pragma unroll 8
    for (int piece = part; piece < p.pieces; piece += p.parts)
      add(from[static_cast<int64_t>(piece) * p.piece_quads]);
  }
  for (int half = p.parts / 2; half > 0; half /= 2) {
    parts[threadIdx.x] = sum;
    __syncthreads();
    if (part < half) add(parts[threadIdx.x + half * lanes]);
    __syncthreads();
  }
  if (part != 0 || quad >= p.piece_quads) return;
  const float values[4] = {sum.x, sum.y, sum.z, sum.w};
  const auto place = [&](int element) {
    const int row = p.divide[0].quotient(element), co = element - row * p.divide[0].divisor;
    const int tap = p.divide[1].quotient(row), ci = row - tap * p.divide[1].divisor;
    const int kh = p.divide[2].quotient(tap), kw = tap - kh * p.divide[2].divisor;
    return static_cast<T*>(p.weight) + ci * p.stride[0] + co * p.stride[1] + kh * p.stride[2] +
           kw * p.stride[3];
  };
  if (p.neighbours) {
    struct alignas(4 * sizeof(T)) {
      T value[4];
    } four;
#pragma unroll
    for (int i = 0; i < 4; ++i) four.value[i] = Numeric<T>::narrow(values[i]);
    *reinterpret_cast<decltype(four)*>(place(quad * 4)) = four;
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (quad * 4 + i < p.elements) store(place(quad * 4 + i), values[i]);
  }
}

template <class T>
void launch_weight_sum(const WeightSumParams& params, bool early, void* stream) {
  const int lanes = kSumThreads / params.parts;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = (params.piece_quads + lanes - 1) / lanes;
  config.blockDim = kSumThreads;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &attribute;
  config.numAttrs = early;
  CONVT2D_CUDA_CHECK(cudaLaunchKernelEx(&config, convt2d_weight_sum_kernel<T>, params));
}

}  // namespace convt2d::cuda
