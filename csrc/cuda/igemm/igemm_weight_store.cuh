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
      const uint32_t pixel = from.mode == kByParcels
                                 ? (j < 2 ? load.low : load.high) >> 16 * (j & 1) & 0xffff
                                 : load.low / pixel_bytes(from.mode, sizeof(T)) + j;
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
__device__ __forceinline__ void multiply_valid(const WeightParams& p,
                                               WeightSums<ROW_TILES, UNITS>& sum,
                                               const WeightTables& tables, const unsigned char* x,
                                               const unsigned char* y, uint32_t x_plane,
                                               uint32_t y_plane) {
  constexpr int kVector = 16 / sizeof(T);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int first_row = warp % p.warps_m * ROW_TILES * 16 + (lane >> 2);
  const int first_unit = warp / p.warps_m * UNITS, column = (lane & 3) * 2;
  const auto place = [](int mode, int channel, uint32_t plane) {
    const int vector = mode == kByPlanes ? 1 : kVector;
    return channel / vector * plane + channel % vector * sizeof(T);
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
        rows[m][i] = staged<T>(x + place(p.x_mode, first_row + m * 16 + i * 8, x_plane) +
                               pixel * pixel_bytes(p.x_mode, sizeof(T)));
#pragma unroll
    for (int u = 0; u < UNITS; ++u) {
      if (!tables.y_valid[base / pixel_bytes(p.y_mode, sizeof(T)) + tables.shifts[first_unit + u]])
        continue;
      const unsigned char* from = y + base + tables.units[first_unit + u];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float value = staged<T>(from + place(p.y_mode, column + j, y_plane));
#pragma unroll
        for (int m = 0; m < ROW_TILES; ++m)
#pragma unroll
          for (int i = 0; i < 2; ++i)
            sum[m][u][2 * i + j] = fmaf(rows[m][i], value, sum[m][u][2 * i + j]);
      }
    }
  }
}

// Stores every sum that is one of dW's, by `write(element, first, second, whether the second exists)`. Short
// code: it runs once, and is fetched from memory for that.
template <int ROW_TILES, int UNITS, class E, class Write>
__device__ __forceinline__ void store_sums(const WeightParams& p, const WeightScope& at,
                                           const WeightTables& tables,
                                           const WeightSums<ROW_TILES, UNITS>& sum, E* to,
                                           uint32_t row_stride, int column_stride, Write&& write) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, column = (lane & 3) * 2;
  const int row = (at.row_block * p.warps_m + warp % p.warps_m) * ROW_TILES * 16 + (lane >> 2);
  const int first_unit = warp / p.warps_m * UNITS, rows_left = p.rows - row;
  to += static_cast<int64_t>(at.group * p.rows + row) * row_stride + column * column_stride;
#pragma unroll
  for (int u = 0; u < UNITS; ++u) {
    E* const here = to + tables.targets[first_unit + u];
    const int left = tables.lefts[first_unit + u] - column;
    if (left <= 0) continue;
#pragma unroll
    for (int m = 0; m < ROW_TILES; ++m)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        if (m * 16 + i * 8 < rows_left)
          write(here + static_cast<uint64_t>(row_stride) * (m * 16 + i * 8), sum[m][u][2 * i],
                sum[m][u][2 * i + 1], left > 1);
  }
}

// To dW, or to this piece's partial sums; `more` adds to what an earlier turn of the piece left there.
template <class T, int ROW_TILES, int UNITS>
__device__ __forceinline__ void store_weights(const WeightParams& p, const WeightScope& at,
                                              const WeightTables& tables,
                                              const WeightSums<ROW_TILES, UNITS>& sum, bool more) {
  float* const partials = p.partials + static_cast<int64_t>(at.piece) * p.piece_floats;
  if (!p.partials) {
    const int stride = p.weight_stride[1];
    store_sums(p, at, tables, sum, static_cast<T*>(p.weight), p.weight_stride[0], stride,
               [stride](T* to, float first, float second, bool both) {
                 store(to, first);
                 if (both) store(to + stride, second);
               });
  } else if (p.columns % 2 == 0 && !more) {
    store_sums(p, at, tables, sum, partials, p.columns, 1,
               [](float* to, float first, float second, bool) {
                 *reinterpret_cast<float2*>(to) = make_float2(first, second);
               });
  } else {
    store_sums(p, at, tables, sum, partials, p.columns, 1,
               [more](float* to, float first, float second, bool both) {
                 to[0] = more ? to[0] + first : first;
                 if (both) to[1] = more ? to[1] + second : second;
               });
  }
}

}  // namespace convt2d::cuda::igemm
