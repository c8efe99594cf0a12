// direct, forward and grad_input with few results and long sums (a bilinear head's grad_input: 5376
// results of 86016 products). The tiles of direct_gather.cuh would leave most of the GPU idle.
//
// A block owns kDotPixels x kDotChannels results. Its threads stride through the products, taps of w
// fastest, so that neighbouring threads read neighbouring weights and mostly neighbouring sources.
// Warps join their sums by shuffles, the block by shared memory: an order fixed by the shape.
#pragma once

#include "cuda/direct/direct_gather_params.cuh"

namespace convt2d::cuda::direct {

template <typename A>
__device__ __forceinline__ A warp_sum(A value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(~0u, value, distance);
  }
  return value;
}

template <typename T>
__global__ __launch_bounds__(kDotThreads) void convt2d_direct_dot_kernel(
    const __grid_constant__ GatherParams params) {
  using A = Accumulator<T>;
  constexpr int pixels = kDotPixels, channels = kDotChannels, warps = kDotThreads / 32;
  __shared__ A parts[warps][pixels][channels];
  const GatherAxis &h = params.h, &w = params.w;

  for (int64_t block = blockIdx.x; block < params.blocks; block += gridDim.x) {
    int64_t tile = block;
    int64_t group = params.divide_column_tiles.split(tile);
    const int phase_w = w.divide_grid_phases.split(tile);
    const int phase_h = h.divide_grid_phases.split(tile);
    const int first_channel = params.divide_group_tiles.split(group) * channels;
    const PhaseWalk walk_h = phase_walk(h, phase_h), walk_w = phase_walk(w, phase_w);
    const int64_t all_pixels = params.batch * walk_h.extent * walk_w.extent;

    const T* source[pixels];
    int64_t target[pixels];
    int y[pixels], x[pixels];
#pragma unroll
    for (int i = 0; i < pixels; ++i) {
      int64_t n = tile * pixels + i;
      const bool exists = n < all_pixels;
      if (!exists) n = 0;
      const int q_w = walk_w.divide_extent.split(n);
      const int q_h = walk_h.divide_extent.split(n);
      x[i] = q_w * w.source_step + walk_w.first_offset;
      y[i] = q_h * h.source_step + walk_h.first_offset;
      source[i] = static_cast<const T*>(params.source) + n * params.source_n +
                  y[i] * h.source_stride + x[i] * w.source_stride +
                  group * params.depth * params.source_c;
      target[i] = n * params.destination_n +
                  (phase_h + int64_t(q_h) * h.destination_step) * h.destination_stride +
                  (phase_w + int64_t(q_w) * w.destination_step) * w.destination_stride;
      if (!exists) target[i] = -1;
    }

    A sum[pixels][channels] = {};
    const T* weights = static_cast<const T*>(params.weight) + group * params.weight_group +
                       first_channel * params.weight_column + walk_h.first_tap * h.weight_stride +
                       walk_w.first_tap * w.weight_stride;
    const FastDivide divide_w(max(walk_w.taps, 1)), divide_h(max(walk_h.taps, 1));
    const int64_t products = int64_t(params.depth) * walk_h.taps * walk_w.taps;
#pragma unroll 1
    for (int64_t product = threadIdx.x; product < products; product += kDotThreads) {
      int64_t channel = product;
      const int tap_w = divide_w.split(channel);
      const int tap_h = divide_h.split(channel);
      const int offset_h = tap_h * h.offset_step, offset_w = tap_w * w.offset_step;
      const int64_t source_offset =
          channel * params.source_c + offset_h * h.source_stride + offset_w * w.source_stride;
      const T* weight =
          weights + channel * params.weight_depth + tap_h * h.weight_delta + tap_w * w.weight_delta;
      A factor[channels];
#pragma unroll
      for (int j = 0; j < channels; ++j) {
        factor[j] = first_channel + j < params.columns ? load(weight) : A(0);
        weight += params.weight_column;
      }
#pragma unroll
      for (int i = 0; i < pixels; ++i) {
        if (unsigned(y[i] + offset_h) >= unsigned(h.source_extent) ||
            unsigned(x[i] + offset_w) >= unsigned(w.source_extent)) {
          continue;
        }
        const A value = load(source[i] + source_offset);
#pragma unroll
        for (int j = 0; j < channels; ++j) sum[i][j] += value * factor[j];
      }
    }

#pragma unroll
    for (int i = 0; i < pixels; ++i) {
#pragma unroll
      for (int j = 0; j < channels; ++j) {
        const A total = warp_sum(sum[i][j]);
        if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32][i][j] = total;
      }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < pixels; ++i) {
      const int j = threadIdx.x - i * channels;
      if (j < 0 || j >= channels || first_channel + j >= params.columns || target[i] < 0) continue;
      const int64_t channel = group * params.columns + first_channel + j;
      A total(0);
#pragma unroll
      for (int warp = 0; warp < warps; ++warp) total += parts[warp][i][j];
      if (params.bias) total += load(static_cast<const T*>(params.bias) + channel);
      store(static_cast<T*>(params.destination) + target[i] + channel * params.destination_c,
            total);
    }
    __syncthreads();
  }
}

}  // namespace convt2d::cuda::direct
