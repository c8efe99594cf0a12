// Outputs in ordinary arithmetic, from global memory. What is beside x, and kernel rows that there are not, are multiplied
// as zeros, and strict fp32 splits an infinity into itself and a NaN: so what is not finite is summed again. Slow, and rare.
#pragma once

#include "cuda/device/numeric.cuh"
#include "cuda/narrow/narrow_config.h"

namespace convt2d::cuda::narrow {

template <class T>
__device__ __forceinline__ bool is_finite(T value) {
  const float wide = Numeric<T>::widen(value);
  return wide - wide == 0.f;
}

template <class T, class Params>
__device__ __noinline__ T plain_output(const Params& p, int n, int channel, int row, int column) {
  const int plane = p.x_h * p.x_w;
  const T* const x = static_cast<const T*>(p.source) + n * p.reduce * plane;
  const T* const weight = static_cast<const T*>(p.weight) + int64_t{channel} * p.weight_column;
  float sum = 0;
  for (int kh = 0; kh < p.kernel_h; ++kh)
    for (int kw = 0; kw < p.kernel_w; ++kw) {
      const int h = row + p.pad_h - kh * p.dilation_h, w = column + p.pad_w - kw * p.dilation_w;
      if (h < 0 || w < 0 || h % p.stride_h || w % p.stride_w) continue;
      if (h / p.stride_h >= p.x_h || w / p.stride_w >= p.x_w) continue;
      for (int c = 0; c < p.reduce; ++c)
        sum = fmaf(
            load(x + (c * p.x_channel + (h / p.stride_h * p.x_w + w / p.stride_w) * p.x_pixel)),
            load(weight + (int64_t{c} * p.weight_reduce + kh * p.weight_h + kw * p.weight_w)), sum);
    }
  if (p.bias) sum += load(static_cast<const T*>(p.bias) + channel);
  return Numeric<T>::narrow(sum);
}

}  // namespace convt2d::cuda::narrow
