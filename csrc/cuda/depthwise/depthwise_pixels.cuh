// NHWC building blocks: staging of w, and access to the channels of a pixel.
#pragma once

#include "cuda/depthwise/depthwise_common.cuh"
#include "cuda/depthwise/depthwise_pixels.h"

namespace convt2d::cuda::depthwise {

// Rows first, first + step, ... of w for a slice of channels, zeros beyond `exist` rows, the kernel and
// the channels.
// `filter_of` maps a channel of the slice to its first element in w. Returns whether this thread saw
// only finite weights.
template <typename T, typename FilterOf>
__device__ bool stage_slice(const Geometry& g, const StagedSlice& staged, int first, int step,
                            int rows, int exist, int channels, FilterOf filter_of, float* weights) {
  bool finite = true;
  for (int index = threadIdx.x; index < rows * staged.columns * staged.channels;
       index += blockDim.x) {
    const int line = staged.by_columns.quotient(index), column = index - line * staged.columns;
    const int row = staged.by_channels.quotient(line), local = line - row * staged.channels;
    float value = 0;
    if (row < exist && column < g.v.kernel && local < channels) {
      value = load(static_cast<const T*>(g.w) + filter_of(local) +
                   (first + row * step) * g.w_stride[2] + column * g.w_stride[3]);
      finite &= is_finite(value);
    }
    weights[(row * staged.columns + column) * staged.pitch + local] = value;
  }
  return finite;
}

// The x under `vector` neighbouring output channels: as many input channels, or half of them twice.
template <typename T, int kVector, bool kDoubled>
__device__ __forceinline__ Pack<T, kVector> load_pixel(const T* from, bool inside) {
  if constexpr (kDoubled) {
    const auto half = load_pack<T, kVector / 2>(from, inside);
    Pack<T, kVector> pack;
#pragma unroll
    for (int i = 0; i < kVector; ++i) pack.value[i] = half.value[i / 2];
    return pack;
  } else {
    return load_pack<T, kVector>(from, inside);
  }
}

template <int kVector>
__device__ __forceinline__ void load_channels(const float* from, float (&value)[kVector]) {
  if constexpr (kVector == 1) {
    value[0] = *from;
  } else {
#pragma unroll
    for (int i = 0; i < kVector; i += 4) {
      const float4 quad = *reinterpret_cast<const float4*>(from + i);
      value[i] = quad.x, value[i + 1] = quad.y, value[i + 2] = quad.z, value[i + 3] = quad.w;
    }
  }
}

}  // namespace convt2d::cuda::depthwise
