// From sums to y: by way of shared memory, where a position's rows are neighbours as they are in y; then what is NaN once
// more, of products that exist: zeros from outside of x are multiplied too, and 0 * inf is NaN.
#pragma once

#include "cuda/device/as_multiplied.cuh"
#include "cuda/gather_device.cuh"
#include "cuda/reed/reed_stage.cuh"

namespace convt2d::cuda::reed {

// Of a thread: [16 rows][8 positions][row g or g + 8, position 2 t or the next]; of words, rows g and g + 8
// of an instruction are rows 2 g and 2 g + 1.
template <int ROW>
using Sums = float[row_tiles(kTiles[ROW])][column_tiles(kTiles[ROW])][4];

template <int ROW>
__device__ __forceinline__ int warp_row() {
  return threadIdx.x / 32 % kTiles[ROW].warps_m * row_tiles(kTiles[ROW]) * 16;
}
template <int ROW>
__device__ __forceinline__ int warp_column() {
  return threadIdx.x / 32 / kTiles[ROW].warps_m % kTiles[ROW].warps_n * column_tiles(kTiles[ROW]) *
         8;
}

// Sums to [position][row].
template <class M, int ROW>
__device__ __forceinline__ void put_sums(const Params& p, const Sums<ROW>& sum, uint32_t out) {
  constexpr int kM = row_tiles(kTiles[ROW]), kN = column_tiles(kTiles[ROW]);
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int pitch = p.out_pitch * 4;
  out += (warp_column<ROW>() + 2 * t) * pitch + warp_row<ROW>() * 4;
#pragma unroll
  for (int j = 0; j < kN; ++j)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const uint32_t to = out + (j * 8 + e) * pitch;
      if constexpr (M::kRow == 8) {
#pragma unroll
        for (int i = 0; i < kM; ++i) {
          const uint32_t place = to + (i * 16 + 2 * g) * 4;
          store_shared<2>(place,
                          {__float_as_uint(sum[i][j][e]), __float_as_uint(sum[i][j][2 + e])});
        }
      } else {
#pragma unroll
        for (int i = 0; i < kM; ++i)
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const uint32_t place = to + (i * 16 + half * 8 + g) * 4;
            store_shared_sum(place, sum[i][j][half * 2 + e]);
          }
      }
    }
}

// One sum, of the products that exist. Slow, and rare: somewhere is a NaN or an infinity.
template <class M>
__device__ __noinline__ float sum_with_care(const Params& p, const Scope& at, Place place,
                                            int row) {
  const RowOf of(p, row);
  float sum = 0;
  for (int h = 0; h < p.taps_h; ++h)
    for (int w = 0; w < p.taps_w; ++w) {
      const int tap_h = of.h + h * p.stride_h, tap_w = of.w + w * p.unit;
      if (tap_h >= p.kernel_h || tap_w >= p.kernel_w) continue;
      if (!reads(p, place, Walk{0, h, w})) continue;
      int64_t x = place.x - h * p.x_row - w * p.x_pixel;
      int64_t weight = int64_t{at.group} * p.w_group +
                       int64_t{of.channel} * p.kernel_h * p.kernel_w + tap_h * p.kernel_w + tap_w;
      for (int k = 0; k < p.terms; ++k) {
        sum = fmaf(as_multiplied<M>(p.x, x), as_multiplied<M>(p.w, weight), sum);
        x += p.x_channel;
        weight += p.w_channel;
      }
    }
  return sum;
}

// Rows of the block, VECTOR at once, that are stored in a run: where in y, and phases; those that are not there far
// outside.
template <int VECTOR>
__device__ __forceinline__ void write_rows(const Params& p, const Scope& at, Tile tile,
                                           uint32_t to) {
  for (int i = threadIdx.x; i * VECTOR < tile.rows; i += threads_of(tile)) {
    const RowOf row(p, at.row + i * VECTOR);
    const bool there = has_row(p, at, i * VECTOR);
    store_shared_16(to + i * 16,
                    {uint32_t(row.y), there ? uint32_t(row.h) : 0xc0000000u, uint32_t(row.w), 0});
  }
}

// Visits what this thread stores: visit(position, first row of the block, place in y).
template <int ROW, int VECTOR, class Visit>
__device__ __forceinline__ void each_run(const Params& p, uint32_t places, uint32_t rows,
                                         Visit&& visit) {
  constexpr int kColumns = kTiles[ROW].columns;
  const int runs = p.used / VECTOR;
  const int count = (runs + p.vectors - 1) / p.vectors * p.vectors * kColumns;
#pragma unroll 1
  for (int item = threadIdx.x; item < count; item += threads_of(kTiles[ROW])) {
    const int rest = p.by_vectors.quotient(item), part = rest / kColumns,
              n = rest - part * kColumns;
    const int run = part * p.vectors + item - rest * p.vectors;
    if (run >= runs) continue;
    const Place place = place_at(places, n);
    uint32_t row[4];
    load_shared_16(rows + run * 16, row);
    const int h = place.h * p.stride_h - p.pad_h + int(row[1]),
              w = place.w * p.unit - p.pad_w + int(row[2]);
    if (unsigned(h) < unsigned(p.y_h) && unsigned(w) < unsigned(p.y_w))
      visit(n, run * VECTOR, place, place.y + int(row[0]));
  }
}

template <class M, int ROW, int VECTOR>
__device__ __forceinline__ void store_runs(const Params& p, const Scope& at, uint32_t places,
                                           uint32_t rows, uint32_t bias, uint32_t out) {
  using T = typename M::Element;
  T* const y = static_cast<T*>(p.y);
  const auto load_run = [](uint32_t from, float (&value)[VECTOR]) {
    if constexpr (VECTOR == 1) {
      value[0] = load_shared<float>(from);
    } else if constexpr (VECTOR == 2) {
      uint32_t word[2];
      load_shared_8(from, word);
      value[0] = __uint_as_float(word[0]), value[1] = __uint_as_float(word[1]);
    } else {
#pragma unroll
      for (int i = 0; i < VECTOR; i += 4) {
        uint32_t word[4];
        load_shared_16(from + i * 4, word);
#pragma unroll
        for (int j = 0; j < 4; ++j) value[i + j] = __uint_as_float(word[j]);
      }
    }
  };
  bool nan = false;
  each_run<ROW, VECTOR>(p, places, rows, [&](int n, int row, const Place&, int to) {
    float value[VECTOR], more[VECTOR];
    load_run(out + (n * p.out_pitch + row) * 4, value);
    load_run(bias + row * 4, more);
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) {
      nan |= value[i] != value[i];
      value[i] += more[i];
    }
    if constexpr (VECTOR * sizeof(T) >= 4) {
      store_run(y + to, value);
    } else {
      store(y + to, value[0]);
    }
  });
  if (!nan) return;
  each_run<ROW, VECTOR>(p, places, rows, [&](int n, int row, const Place& place, int to) {
    float value[VECTOR], more[VECTOR];
    load_run(out + (n * p.out_pitch + row) * 4, value);
    load_run(bias + row * 4, more);
#pragma unroll 1
    for (int i = 0; i < VECTOR; ++i)
      if (value[i] != value[i])
        store(y + to + i, sum_with_care<M>(p, at, place, at.row + row + i) + more[i]);
  });
}

// `rows` and `out` may be where the stages were; all threads have the same sums behind them.
template <class M, int ROW>
__device__ __forceinline__ void store_sums(const Params& p, const Scope& at, const Sums<ROW>& sum,
                                           uint32_t places, uint32_t rows, uint32_t bias,
                                           uint32_t out) {
  const auto store = [&](auto vector) {
    constexpr int kVector = decltype(vector)::value;
    write_rows<kVector>(p, at, kTiles[ROW], rows);
    put_sums<M, ROW>(p, sum, out);
    __syncthreads();
    store_runs<M, ROW, kVector>(p, at, places, rows, bias, out);
  };
  if (p.vector == 4) {
    store(std::integral_constant<int, 4>());
  } else if (p.vector == 2) {
    store(std::integral_constant<int, 2>());
  } else if (p.vector == 1) {
    store(std::integral_constant<int, 1>());
  } else if constexpr (sizeof(typename M::Element) == 2) {
    store(std::integral_constant<int, 8>());
  }
}

}  // namespace convt2d::cuda::reed
