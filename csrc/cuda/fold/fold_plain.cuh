// Outputs in ordinary arithmetic, from global memory. In strict fp32 an infinity is split into itself and a NaN, so what is
// not finite is summed again. Slow, and rare.
#pragma once

#include "cuda/fold/fold_config.h"

namespace convt2d::cuda::fold {

__device__ __forceinline__ bool is_finite(float value) {
  return __float_as_uint(value) << 1 < 0xff000000u;
}

// The products of a pixel and a tap, added to a sum. `channel`: of y.
__device__ __forceinline__ float plain_products(const Params& p, int n, int channel, int pixel,
                                                int tap, float sum) {
  const int group = channel / p.columns, plane = p.x_h * p.x_w;
  const float* const x =
      static_cast<const float*>(p.source) + (n * p.groups + group) * p.reduce * plane + pixel;
  const float* const w = static_cast<const float*>(p.weight) +
                         int64_t{group} * p.reduce * p.weight_stride[0] +
                         (channel - group * p.columns) * p.weight_stride[1] +
                         tap / p.kernel * p.weight_stride[2] + tap % p.kernel * p.weight_stride[3];
  for (int c = 0; c < p.reduce; ++c)
    sum = fmaf(x[c * plane], w[int64_t{c} * p.weight_stride[0]], sum);
  return sum;
}
__device__ __forceinline__ float plain_bias(const Params& p, int channel) {
  return p.bias ? static_cast<const float*>(p.bias)[channel] : 0.f;
}

inline __device__ __noinline__ float plain_output(const Params& p, int n, int channel, int row,
                                                  int column) {
  float sum = 0;
  for (int tap = 0; tap < taps(p); ++tap) {
    const int h = row + p.pad_h - tap / p.kernel, w = column + p.pad_w - tap % p.kernel;
    if (h < 0 || w < 0 || h % kStride || w % kStride) continue;
    if (h / kStride < p.x_h && w / kStride < p.x_w)
      sum = plain_products(p, n, channel, h / kStride * p.x_w + w / kStride, tap, sum);
  }
  return sum + plain_bias(p, channel);
}
inline __device__ __noinline__ float plain_flat(const Params& p, int n, int channel, int pixel,
                                                int tap) {
  return plain_products(p, n, channel, pixel, tap, 0.f) + plain_bias(p, channel);
}

}  // namespace convt2d::cuda::fold
