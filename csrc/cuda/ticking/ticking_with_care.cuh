// For what tensor cores made NaN of numbers that only stand in for what is not there.
#pragma once

#include "cuda/device/as_multiplied.cuh"
#include "cuda/ticking/ticking_config.h"

namespace convt2d::cuda::ticking {

// One number of dX, in ordinary arithmetic, of products that exist.
template <class M>
__device__ __forceinline__ float sum_with_care(const Params& p, int n, int group, int input, int h,
                                               int w) {
  float sum = 0;
  for (int kh = 0; kh < p.kernel_h; ++kh) {
    const int y_h = h * p.stride_h - p.pad_h + kh * p.dilation_h;
    if (y_h < 0 || y_h >= p.y_h) continue;
    for (int kw = 0; kw < p.kernel_w; ++kw) {
      const int y_w = w * p.stride_w - p.pad_w + kw * p.dilation_w;
      if (y_w < 0 || y_w >= p.y_w) continue;
      for (int c = 0; c < p.columns; ++c)
        sum = fmaf(as_multiplied<M>(p.y, ((n * p.groups + group) * p.columns + c) * p.y_plane +
                                             y_h * p.y_w + y_w),
                   as_multiplied<M>(p.weight, int64_t{group * p.rows + input} * p.weight_stride[0] +
                                                  c * p.weight_stride[1] + kh * p.weight_stride[2] +
                                                  kw * p.weight_stride[3]),
                   sum);
    }
  }
  return sum;
}

}  // namespace convt2d::cuda::ticking
