// grad_weight after the main loop: the NaN rule, and where the sums go.
#pragma once

#include "cuda/igemm/igemm_weight_stage.cuh"

namespace convt2d::cuda::igemm {

// As mma.sync has them: [16 rows][unit][row g or g + 8, column 2 t or + 1], with g = lane / 4, t = lane % 4.
template <int ROW_TILES, int UNITS>
using WeightSums = float[ROW_TILES][UNITS][4];

template <int ROW_TILES, int UNITS, class Visit>
__device__ __forceinline__ void visit_sums(WeightSums<ROW_TILES, UNITS>& sum, Visit&& visit) {
#pragma unroll
  for (int m = 0; m < ROW_TILES; ++m)
#pragma unroll
    for (int u = 0; u < UNITS; ++u)
#pragma unroll
      for (int i = 0; i < 4; ++i) visit(sum[m][u][i]);
}

template <int ROW_TILES, int UNITS>
__device__ __forceinline__ void clear(WeightSums<ROW_TILES, UNITS>& sum) {
  visit_sums<ROW_TILES, UNITS>(sum, [](float& value) { value = 0.f; });
}

// Tensor-core tiles multiply zero-filled borders too, and 0 * inf is NaN.
template <int ROW_TILES, int UNITS>
__device__ __forceinline__ bool any_nan(WeightSums<ROW_TILES, UNITS>& sum) {
  bool found = false;
  visit_sums<ROW_TILES, UNITS>(sum, [&](float& value) { found |= value != value; });
  return found;
}

// Which pixels of a staged tile exist.
template <class T>
__device__ __forceinline__ void mark_valid(const Operand<T>& from, unsigned char* valid, int thread,
                                           int threads) {
  for (int i = thread; i < from.count; i += threads) {
    const WeightLoad load = from.load(i);
    for (int j = 0; j < from.run; ++j) {
      const uint32_t pixel = (j < 2 ? load.low : load.high) >> 16 * (j & 1) & 0xffff;
      if (pixel != kNoPixel) valid[pixel] = from.exists(i, load);
    }
  }
}

// A number as the tensor core sees it.
template <class T>
__device__ __forceinline__ float staged(const unsigned char* from) {
  if constexpr (sizeof(T) == 4) {
    return __uint_as_float(*reinterpret_cast<const uint32_t*>(from) & 0xffffe000u);
  } else {
    return Numeric<T>::widen(*reinterpret_cast<const T*>(from));
  }
}

// The sums of a staged tile on plain multiply-adds, where every product is of two pixels that exist. Slow,
// and rare: somewhere is a NaN or an infinity.
template <class T, int ROW_TILES, int UNITS>
__device__ __forceinline__ void multiply_valid(const WeightParams& p, WeightSums<ROW_TILES, UNITS>& sum,
                                               const WeightTables& tables, const unsigned char* x,
                                               const unsigned char* y, uint32_t x_plane,
                                               uint32_t y_plane) {
  constexpr int kVector = 16 / sizeof(T);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int first_row = warp % p.warps_m * ROW_TILES * 16 + (lane >> 2);
  const int first_unit = warp / p.warps_m * UNITS, column = (lane & 3) * 2;
  const auto place = [](int channel, uint32_t plane) {
    return channel / kVector * plane + channel % kVector * sizeof(T);
  };
#pragma unroll 1
  for (int pixel = 0; pixel < p.pixels; ++pixel) {
    if (!tables.x_valid[pixel]) continue;
    const int base = tables.bases[pixel];
    float rows[ROW_TILES][2];
#pragma unroll
    for (int m = 0; m < ROW_TILES; ++m)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        rows[m][i] = staged<T>(x + place(first_row + m * 16 + i * 8, x_plane) + pixel * 16);
#pragma unroll
    for (int u = 0; u < UNITS; ++u) {
      if (!tables.y_valid[base / 16 + tables.shifts[first_unit + u]]) continue;
      const unsigned char* from = y + base + tables.units[first_unit + u];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float value = staged<T>(from + place(column + j, y_plane));
#pragma unroll
        for (int m = 0; m < ROW_TILES; ++m)
#pragma unroll
          for (int i = 0; i < 2; ++i)
            sum[m][u][2 * i + j] = fmaf(rows[m][i], value, sum[m][u][2 * i + j]);
      }
    }
  }
}

// To dW, or to this piece's partial sums; `more` adds to what an earlier run of the piece left there.
template <class T, int ROW_TILES, int UNITS>
__device__ __forceinline__ void store_weights(const WeightParams& p, const WeightScope& at,
                                              const WeightSums<ROW_TILES, UNITS>& sum, bool more) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int first_row = (at.row_block * p.warps_m + warp % p.warps_m) * ROW_TILES * 16 + (lane >> 2);
  const int first_unit = warp / p.warps_m * UNITS;
#pragma unroll
  for (int u = 0; u < UNITS; ++u) {
    const int unit = first_unit + u, index = unit / p.octets;
    if (unit >= at.units) break;
    const int index_h = index / at.taps_w;
    const int tap_h = p.h.tap[at.first_h + index_h];
    const int tap_w = p.w.tap[at.first_w + index - index_h * at.taps_w];
    const int column =
        (at.octet_block * p.octets + unit - index * p.octets) * 8 + (lane & 3) * 2;
    const int64_t tap = int64_t{at.piece} * p.h.taps * p.w.taps + tap_h * p.w.taps + tap_w;
#pragma unroll
    for (int m = 0; m < ROW_TILES; ++m)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = first_row + m * 16 + i * 8;
        if (row >= p.rows || column >= p.columns) continue;
        const bool second = column + 1 < p.columns;
        const int channel = at.group * p.rows + row;
        float value[2] = {sum[m][u][2 * i], sum[m][u][2 * i + 1]};
        if (p.partials) {
          float* to = p.partials + (tap * p.groups * p.rows + channel) * p.columns + column;
          if (more) {
            value[0] += to[0];
            if (second) value[1] += to[1];
          }
          if (p.columns % 2 == 0) {
            *reinterpret_cast<float2*>(to) = make_float2(value[0], value[1]);
          } else {
            to[0] = value[0];
            if (second) to[1] = value[1];
          }
        } else {
          T* to = static_cast<T*>(p.weight) + channel * p.weight_stride[0] +
                  column * p.weight_stride[1] + tap_h * p.weight_stride[2] +
                  tap_w * p.weight_stride[3];
          store(to, value[0]);
          if (second) store(to + p.weight_stride[1], value[1]);
        }
      }
  }
}

}  // namespace convt2d::cuda::igemm
