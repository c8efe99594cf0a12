// Outputs in ordinary arithmetic, from global memory: tensor cores multiply the zeros around x too, and 0 * inf is NaN, so
// what is not finite is summed again. Slow, and rare.
#pragma once

#include "cuda/device/numeric.cuh"
#include "cuda/slide/slide_config.h"

namespace convt2d::cuda::slide {

template <class T>
__device__ __forceinline__ bool is_finite(T value) {
  const float wide = Numeric<T>::widen(value);
  return wide - wide == 0.f;
}

// `channel`: of the group.
template <class T>
__device__ __noinline__ T plain_output(const Params& p, Tile tile, int n, int group, int channel,
                                       int row, int column) {
  const int h = row + p.pad_h, w = column + p.pad_w, plane = p.x_h * p.x_w;
  const T* const x = static_cast<const T*>(p.source) + (n * p.groups + group) * p.reduce * plane;
  const T* const weight = static_cast<const T*>(p.weight) + int64_t{group} * p.weight_group +
                          int64_t{channel} * p.weight_column;
  float sum = 0;
  const int phase = h % p.stride_h;
  for (int i = p.first_tap[phase]; i < p.first_tap[phase + 1]; ++i) {
    const int kh = p.tap[i], from_row = h / p.stride_h - p.tap_shift[kh];
    if (from_row < 0 || from_row >= p.x_h) continue;
    for (int kw = w % tile.stride; kw < tile.kernel; kw += tile.stride) {
      const int from_column = (w - kw) / tile.stride;
      if (kw > w || from_column >= p.x_w) continue;
      for (int c = 0; c < p.reduce; ++c)
        sum = fmaf(
            load(x + (c * plane + from_row * p.x_w + from_column)),
            load(weight + (int64_t{c} * p.weight_reduce + kh * p.weight_h + kw * p.weight_w)), sum);
    }
  }
  if (p.bias) sum += load(static_cast<const T*>(p.bias) + group * p.columns + channel);
  return Numeric<T>::narrow(sum);
}

}  // namespace convt2d::cuda::slide
