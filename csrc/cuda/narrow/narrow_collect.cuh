// The second half of the narrow kernel: a warpgroup puts the products of a row into shared memory, and each output collects
// those that land on it, kernel columns in a fixed order.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/barrier.cuh"
#include "cuda/narrow/narrow_plain.cuh"
#include "cuda/narrow/narrow_scope.cuh"

namespace convt2d::cuda::narrow {

template <class T, int ROW>
using Sums = float[operands(sizeof(T))][kTiles[ROW].width / 2];

// Columns 8 i + 2 t and the next, pixels l / 4 and l / 4 + 8: with a pitch of 4 banks more than all of them, each store of a
// warp meets a bank once.
template <class T, int ROW>
__device__ __forceinline__ void store_products(const Params& p, const Sums<T, ROW>& sum,
                                               uint32_t products) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
  for (int o = 0; o < operands(sizeof(T)); ++o)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int pixel = o * kRows + warp * 16 + half * 8 + lane / 4, image = pixel / p.run;
      const uint32_t to = products + (lane % 4 * 2 * p.pitch + pixel + (image + 1) * p.margin) * 4;
#pragma unroll
      for (int i = 0; i < kTiles[ROW].width / 8; ++i)
#pragma unroll
        for (int odd = 0; odd < 2; ++odd)
          store_shared_sum(to + (8 * i + odd) * p.pitch * 4, sum[o][4 * i + 2 * half + odd]);
    }
}

// A thread has all outputs of a position in a row.
template <class T>
__device__ __forceinline__ void collect(const Params& p, const Item& item, int row,
                                        uint32_t products) {
  const int start = item.sweep * p.step, lead = item.sweep ? p.run - p.step : 0,
            end = item.sweep == p.sweeps - 1 ? p.end_position - start : p.run;
  T* const y = static_cast<T*>(p.destination);
  const int count = p.stride_h * p.columns * p.images * p.positions;
  for (int task = threadIdx.x % 128; task < count; task += 128) {
    const int lines = p.by_positions.quotient(task), position = lead + task - lines * p.positions;
    const int line = p.by_images.quotient(lines), image = lines - line * p.images;
    const int phase = p.by_columns.quotient(line), channel = line - phase * p.columns;
    const int y_row = row * p.stride_h + phase - p.pad_h, n = item.n + image;
    if (position >= end || y_row < 0 || y_row >= p.y_h || n >= p.batch) continue;
    const uint32_t from =
        products +
        (line * p.kernel_w * p.pitch + image * p.run + (image + 1) * p.margin + position) * 4;
    const float bias = p.bias ? load(static_cast<const T*>(p.bias) + channel) : 0.f;
    const int first = (start + position) * p.stride_w - p.pad_w;
    T* const to = y + (n * p.columns * p.y_h * p.y_w + channel * p.y_channel +
                       (y_row * p.y_w + first) * p.y_pixel);
    for (int e = 0; e < p.stride_w; ++e) {
      if (first + e < 0 || first + e >= p.y_w) continue;
      float sum = bias;
#pragma unroll 4
      for (int i = p.first_column[e]; i < p.first_column[e + 1]; ++i)
        sum += load_shared<float>(from + p.column[i]);
      T value = Numeric<T>::narrow(sum);
      if (!is_finite(value)) value = plain_output<T>(p, n, channel, y_row, first + e);
      to[e * p.y_pixel] = value;
    }
  }
}

}  // namespace convt2d::cuda::narrow
