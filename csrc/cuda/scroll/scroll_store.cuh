// How rows of y go to memory, and what is done about zeros that were multiplied by what is not finite.
#pragma once

#include <type_traits>

#include "cuda/device/async_copy.cuh"
#include "cuda/device/memory.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/scroll/scroll_walk.cuh"

namespace convt2d::cuda::scroll {

// Of the two positions that a thread has of a strip, elements from the first of y to channel 0 of the block in row 0; or -1.
struct Places {
  int32_t of[2];
};
__device__ __forceinline__ Places places_of(const Params& p, Tile tile, const Scope& at,
                                            const Descent& part) {
  Places places;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int position = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4 + half * 8;
    const int n = part.n + (p.eights ? position / kEight : 0),
              column = (part.q + (p.eights ? position % kEight : position)) * p.stride_w + at.phase;
    places.of[half] = n < p.batch && column < p.y_w
                          ? (n * p.y_h * p.y_w + column) * p.columns + at.column_tile * tile.width
                          : -1;
  }
  return places;
}

// Calls visit(first channel of the tile, first of its columns' eights, channels as a type) for each run of channels that
// a thread has.
template <class T, int WIDTH, class Visit>
__device__ __forceinline__ void for_runs(Visit&& visit) {
  constexpr int kRun = 16 / sizeof(T), kColumns = 4 * kRun;
  const int quarter = threadIdx.x % 4;
#pragma unroll
  for (int group = 0; group + kColumns <= WIDTH; group += kColumns)
    visit(group + quarter * kRun, group / 8, std::integral_constant<int, kRun>());
  if constexpr (WIDTH % kColumns != 0)
    visit(WIDTH - 16 + quarter * 4, (WIDTH - 16) / 8, std::integral_constant<int, 4>());
}

// The rows of y that are complete once row `row` of x is multiplied.
template <class T, int ROW>
__device__ __forceinline__ void store_rows(const Params& p, const Scope& at, const Places& places,
                                           uint32_t bias, int row,
                                           const float (&sum)[columns_of(kTiles[ROW]) / 2]) {
  constexpr int kWidth = kTiles[ROW].width, kStep = kTiles[ROW].step;
  const int left = p.columns - at.column_tile * kWidth, pitch = p.y_w * p.columns;
#pragma unroll
  for (int i = 0; i < kStep; ++i) {
    const int y = row * kStep - p.pad_h + i;
    if (y < 0 || y >= p.y_h) continue;
    T* const line = static_cast<T*>(p.destination) + y * pitch;
    for_runs<T, kWidth>([&](int channel, int eight, auto count) {
      constexpr int kCount = decltype(count)::value;
      float more[kCount];
#pragma unroll
      for (int j = 0; j < kCount; j += 4) {
        uint32_t word[4];
        load_shared_16(bias + (channel + j) * 4, word);
#pragma unroll
        for (int k = 0; k < 4; ++k) more[j + k] = __uint_as_float(word[k]);
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t word[4] = {};
#pragma unroll
        for (int j = 0; j < kCount / 2; ++j) {
          const int at_sum = (i * (kWidth / 8) + eight + j) * 4 + half * 2;
          const float first = sum[at_sum] + more[2 * j], second = sum[at_sum + 1] + more[2 * j + 1];
          if constexpr (sizeof(T) == 4) {
            word[2 * j] = __float_as_uint(first), word[2 * j + 1] = __float_as_uint(second);
          } else {
            word[j] = pack<T>(first, second);
          }
        }
        store_words_if<kCount* int(sizeof(T)) / 4>(channel < left ? places.of[half] : -1,
                                                   line + places.of[half] + channel, word[0],
                                                   word[1], word[2], word[3]);
      }
    });
  }
}

// An output in ordinary arithmetic.
template <class T, bool PLANES>
__device__ __noinline__ T plain_output(const Params& p, int n, int channel, int row, int column) {
  const T* const x = static_cast<const T*>(p.source);
  const T* const weight = static_cast<const T*>(p.weight) + channel * p.weight_column;
  float sum = 0;
  for (int kh = 0; kh < p.kernel_h; ++kh)
    for (int kw = 0; kw < p.kernel_w; ++kw) {
      const int h = row + p.pad_h - kh, w = column + p.pad_w - kw * p.dilation_w;
      if (h < 0 || w < 0 || h % p.stride_h || w % p.stride_w) continue;
      if (h / p.stride_h >= p.x_h || w / p.stride_w >= p.x_w) continue;
      for (int c = 0; c < p.reduce; ++c)
        sum = fmaf(
            load(x + spot_of<PLANES>(n, c, p.reduce, h / p.stride_h, p.x_h, w / p.stride_w, p.x_w)),
            load(weight + (c * p.weight_reduce + kh * p.weight_h + kw * p.weight_w)), sum);
    }
  if (p.bias) sum += load(static_cast<const T*>(p.bias) + channel);
  return Numeric<T>::narrow(sum);
}

template <class T, bool PLANES>
__device__ __forceinline__ void repair_output(const Params& p, int n, int channel, int y,
                                              int column) {
  T* const to = static_cast<T*>(p.destination) +
                spot_of<PLANES>(n, channel, p.columns, y, p.y_h, column, p.y_w);
  const float stored = Numeric<T>::widen(*to);
  if (stored != stored) *to = plain_output<T, PLANES>(p, n, channel, y, column);
}

// Zeros stand in for pixels beside the image, so where a weight is not finite what came out NaN is summed again: by a second
// walk, when all is stored.
template <class T, int ROW>
__device__ __noinline__ void repair(const Params* params, Scope at, int group) {
  constexpr Tile tile = kTiles[ROW];
  const Params& p = *params;
  Descent part(p, at, group);
  while (part.next(p, tile)) {
    const int end = min(part.last * tile.step - p.pad_h, p.y_h);
    for (int y = max(part.first * tile.step - p.pad_h, 0); y < end; ++y)
      for (int i = threadIdx.x % 128; i < kPositions * tile.width; i += 128) {
        const int position = i / tile.width, channel = at.column_tile * tile.width + i % tile.width;
        const int n = part.n + (p.eights ? position / kEight : 0),
                  column =
                      (part.q + (p.eights ? position % kEight : position)) * p.stride_w + at.phase;
        if (n >= p.batch || column >= p.y_w || channel >= p.columns) continue;
        repair_output<T, false>(p, n, channel, y, column);
      }
  }
}

}  // namespace convt2d::cuda::scroll
