// The comb kernel; comb_config.h draws the GEMM.
//
// All warps of a block ask for a chunk of pixels (cp.async) a few chunks ahead, then multiply the one that is there. If
// a sum came out NaN, it is added up again, of products that exist: zeros from outside of dY are multiplied too, and
// 0 * inf is NaN.
#pragma once

#include "cuda/comb/comb_config.h"
#include "cuda/device/as_multiplied.cuh"
#include "cuda/device/async_copy.cuh"
#include "cuda/device/digits.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/numeric.cuh"

namespace convt2d::cuda::comb {

// What a block works on.
struct Scope {
  int group, row, column;  // the first of the group's
  int piece, begin, end;   // chunks
};
// Neighbouring blocks read the same pixels of dY, at about the same time.
__device__ __forceinline__ Scope scope_of(const Params& p, Tile tile) {
  Digits number{int(blockIdx.x)};
  Scope at;
  at.row = number.next(p.row_blocks) * tile.rows;
  at.column = number.next(p.column_blocks) * tile.columns;
  at.group = number.next(p.groups);
  at.piece = number.rest;
  at.begin = static_cast<int>(int64_t{p.chunks} * at.piece / p.split);
  at.end = static_cast<int>(int64_t{p.chunks} * (at.piece + 1) / p.split);
  return at;
}

// A pixel of all images: where its plane's number 0 would be in x, of channel 0; and its place in the plane.
struct Pixel {
  int image, in_plane, h, w;
  __device__ __forceinline__ Pixel(const Params& p, int pixel) {
    image = p.by_plane.quotient(pixel);
    in_plane = pixel - image * p.x_plane;
    h = p.by_width.quotient(in_plane);
    w = in_plane - h * static_cast<int>(p.by_width.divisor);
  }
};

// The columns whose taps a thread copies: every eighth four of the block's, the same in all chunks.
template <int COUNT>
struct Taps {
  int32_t offset[COUNT];  // in dY, from a pixel's first tap of the group's first channel
  uint32_t place[COUNT];  // rows and columns from there
  uint32_t exist = 0;     // a bit each
  __device__ __forceinline__ Taps(const Params& p, int first) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      const int column = first + i * 8 * kTogether, taps = p.kernel_h * p.kernel_w;
      const int channel = column / taps, tap = column - channel * taps;
      const int h = tap / p.kernel_w * p.dilation_h, w = tap % p.kernel_w;
      offset[i] = channel * p.y_plane + h * p.y_w + w;
      place[i] = uint32_t(h) << 16 | w;
      exist |= uint32_t(column < p.columns) << i;
    }
  }
};

// dY of a chunk: a thread has one pixel, as the lanes beside it the next ones, and eight lanes neighbouring columns.
template <class T, int COUNT>
__device__ __forceinline__ void bring_y(const Params& p, const Scope& at, const Taps<COUNT>& taps,
                                        int chunk, uint32_t to, int pitch) {
  const int lane = threadIdx.x % 32, k = threadIdx.x / 32 * 4 + lane / 8;
  const int number = chunk * kChunk + k;
  const Pixel pixel(p, number);
  const int h = pixel.h * p.stride_h - p.pad_h, w = pixel.w * p.stride_w - p.pad_w;
  const T* const y = static_cast<const T*>(p.y);
  const int64_t from = int64_t{pixel.image} * p.y_image +
                       int64_t{at.group} * (p.columns / (p.kernel_h * p.kernel_w)) * p.y_plane +
                       h * p.y_w + w;
  to += k * pitch + lane % 8 * kTogether * int(sizeof(T));
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    const int row = h + int(taps.place[i] >> 16), column = w + int(taps.place[i] & 0xffff);
    const bool there = number < p.pixels && taps.exist >> i & 1 &&
                       unsigned(row) < unsigned(p.y_h) && unsigned(column) < unsigned(p.y_w);
    copy_async<kTogether* int(sizeof(T))>(to + i * 8 * kTogether * int(sizeof(T)),
                                          there ? y + from + taps.offset[i] : y, there);
  }
}

// x of a chunk, BYTES at once: all pixels of a piece are of one plane.
template <class T, int BYTES, int ROWS>
__device__ __forceinline__ void bring_x(const Params& p, const Scope& at, int chunk, uint32_t to) {
  constexpr int kNumbers = BYTES / int(sizeof(T)), kLanes = kChunk / kNumbers;
  constexpr int kRows = kThreads / kLanes, kPitch = x_pitch(sizeof(T));  // at once
  const int k = threadIdx.x % kLanes * kNumbers, first = threadIdx.x / kLanes;
  const int number = chunk * kChunk + k, rows = min(p.rows - at.row, ROWS);
  const Pixel pixel(p, number);
  const T* const x = static_cast<const T*>(p.x);
  const T* from = x + int64_t{pixel.image} * p.x_image +
                  int64_t{at.group * p.rows + at.row + first} * p.x_plane + pixel.in_plane;
  to += first * kPitch + k * int(sizeof(T));
#pragma unroll
  for (int row = 0; row < ROWS; row += kRows) {
    if (kRows > ROWS && first >= ROWS) break;
    const bool there = number < p.pixels && first + row < rows;
    copy_async<BYTES>(to + row * kPitch, there ? from : x, there);
    from += kRows * p.x_plane;
  }
}

// The same number by number, where planes are odd, or channels are neighbours. Numbers of 16 bits go through registers.
template <class T, int ROWS>
struct Numbers {
  static constexpr int kCount = ROWS / kWarps;
  uint32_t pair[sizeof(T) == 2 ? kCount / 2 : 1];

  template <class Visit>
  static __device__ __forceinline__ void each(const Params& p, Visit&& visit) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (p.x_pixel > 0) {
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        visit(i, i % (ROWS / 32) * 32 + lane, i / (ROWS / 32) * kWarps + warp);
    } else {
#pragma unroll
      for (int i = 0; i < kCount; ++i) visit(i, i * kWarps + warp, lane);
    }
  }
  __device__ __forceinline__ void bring(const Params& p, const Scope& at, int chunk, uint32_t to) {
    const T* const x = static_cast<const T*>(p.x);
    const int rows = min(p.rows - at.row, ROWS);
    const Pixel of_lane(p, chunk * kChunk + threadIdx.x % 32);
    const int64_t plane = int64_t{of_lane.image} * p.x_image + of_lane.in_plane;
    each(p, [&](int i, int row, int k) {
      const int number = chunk * kChunk + k;
      const bool there = number < p.pixels && row < rows;
      const int64_t pixel = p.x_pixel > 0 ? int64_t{number} * p.x_pixel : plane;
      const T* const from = x + pixel + int64_t{at.group * p.rows + at.row + row} * p.x_channel;
      if constexpr (sizeof(T) == 4) {
        copy_async<4>(to + row * x_pitch(4) + k * 4, there ? from : x, there);
      } else {
        const uint32_t bits =
            there ? __ldg(reinterpret_cast<const unsigned short*>(from)) : uint32_t{0};
        pair[i / 2] = i % 2 ? pair[i / 2] | bits << 16 : bits;
      }
    });
  }
  __device__ __forceinline__ void put(const Params& p, uint32_t to) const {
    if constexpr (sizeof(T) == 2)
      each(p, [&](int i, int row, int k) {
        store_shared_2(to + row * x_pitch(2) + k * 2,
                       static_cast<unsigned short>(pair[i / 2] >> i % 2 * 16));
      });
  }
};

// Of a thread: [16 channels][8 columns][channel g or g + 8, column 2 t or the next].
template <int ROW>
using Sums = float[row_tiles(kTiles[ROW])][column_tiles(kTiles[ROW])][4];

template <int ROW>
__device__ __forceinline__ int warp_row() {
  return threadIdx.x / 32 % kTiles[ROW].warps_m * row_tiles(kTiles[ROW]) * 16;
}
template <int ROW>
__device__ __forceinline__ int warp_column() {
  return threadIdx.x / 32 / kTiles[ROW].warps_m * column_tiles(kTiles[ROW]) * 8;
}

// Columns of an instruction, as words: a thread has 16 bytes of a pixel for four of them. `step`: of 32 bytes of K.
template <class T, int ROW>
__device__ __forceinline__ void load_columns(uint32_t (&word)[column_tiles(kTiles[ROW])][2],
                                             uint32_t y, int step) {
  constexpr Tile tile = kTiles[ROW];
  constexpr int kPitch = y_pitch(tile, sizeof(T));
  const int lane = threadIdx.x % 32;
  if constexpr (sizeof(T) == 4) {
    y += (step * 8 + lane % 4) * kPitch + (warp_column<ROW>() + lane / 4 * 4) * 4;
#pragma unroll
    for (int i = 0; i < column_tiles(tile); i += 4) {
      uint32_t four[2][4];
      load_shared_16(y + i * 32, four[0]);
      load_shared_16(y + i * 32 + 4 * kPitch, four[1]);
#pragma unroll
      for (int j = 0; j < 4; ++j) word[i + j][0] = four[0][j], word[i + j][1] = four[1][j];
    }
  } else {
    y += (step * 16 + lane % 16) * kPitch + (warp_column<ROW>() + lane / 16 * 8) * 2;
#pragma unroll
    for (int i = 0; i < column_tiles(tile); i += 2) {
      uint32_t two[4];
      ldmatrix_x4_turned(two, y + i * 16);
      word[i][0] = two[0], word[i][1] = two[1];
      word[i + 1][0] = two[2], word[i + 1][1] = two[3];
    }
  }
}

// A chunk.
template <class M, int ROW>
__device__ __forceinline__ void multiply(Sums<ROW>& sum, uint32_t stage) {
  using T = typename M::Element;
  constexpr Tile tile = kTiles[ROW];
  constexpr int kSteps = kChunk / M::kRow, kM = row_tiles(tile), kN = column_tiles(tile);
  static_assert(!M::kSplit || kSteps == MmaF32x3::kFoldSteps);
  constexpr int kPitch = x_pitch(sizeof(T));
  const int lane = threadIdx.x % 32;
  const uint32_t x = stage + (warp_row<ROW>() + lane % 16) * kPitch + lane / 16 * 16;
  const uint32_t y = stage + x_bytes(tile, sizeof(T));
  if constexpr (M::kSplit) {
    // Sums of some 200 products are the shortest here. Folded every kFoldSteps, the worst of them is 2.9 units off
    // (k5s1p2 of tests/cases.py), where the rule allows 2.3.
    constexpr int kFold = M::kFoldSteps / 2;
#pragma unroll
    for (int first = 0; first < kSteps; first += kFold) {
      float few[kM][kN][4] = {};
#pragma unroll
      for (int step = first; step < first + kFold; ++step) {
        uint32_t columns[kN][2], low[kN][2];
        load_columns<T, ROW>(columns, y, step);
#pragma unroll
        for (int j = 0; j < kN; ++j)
#pragma unroll
          for (int half = 0; half < 2; ++half)
            M::split(columns[j][half], columns[j][half], low[j][half]);
#pragma unroll
        for (int i = 0; i < kM; ++i) {
          uint32_t rows[4], rest[4];
          ldmatrix_x4(rows, x + i * 16 * kPitch + step * 32);
#pragma unroll
          for (int w = 0; w < 4; ++w) M::split(rows[w], rows[w], rest[w]);
#pragma unroll
          for (int j = 0; j < kN; ++j) {
            M::mma(few[i][j], rest, columns[j][0], columns[j][1]);
            M::mma(few[i][j], rows, low[j][0], low[j][1]);
            M::mma(few[i][j], rows, columns[j][0], columns[j][1]);
          }
        }
      }
#pragma unroll
      for (int i = 0; i < kM; ++i)
#pragma unroll
        for (int j = 0; j < kN; ++j)
#pragma unroll
          for (int e = 0; e < 4; ++e) sum[i][j][e] += few[i][j][e];
    }
  } else {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      uint32_t columns[kN][2];
      load_columns<T, ROW>(columns, y, step);
#pragma unroll
      for (int j = 0; j < kN; ++j)
#pragma unroll
        for (int half = 0; half < 2; ++half) columns[j][half] = M::round(columns[j][half]);
#pragma unroll
      for (int i = 0; i < kM; ++i) {
        uint32_t rows[4];
        ldmatrix_x4(rows, x + i * 16 * kPitch + step * 32);
#pragma unroll
        for (int w = 0; w < 4; ++w) rows[w] = M::round(rows[w]);
#pragma unroll
        for (int j = 0; j < kN; ++j) M::mma(sum[i][j], rows, columns[j][0], columns[j][1]);
      }
    }
  }
}

// One sum, of the products that exist. Slow, and rare: somewhere is a NaN or an infinity.
template <class M>
__device__ __noinline__ float sum_with_care(const Params& p, const Scope& at, int row, int column) {
  const int taps = p.kernel_h * p.kernel_w, channel = column / taps, tap = column - channel * taps;
  const int tap_h = tap / p.kernel_w * p.dilation_h, tap_w = tap % p.kernel_w;
  const int64_t y_channel = int64_t{at.group} * (p.columns / taps) + channel;
  float sum = 0;
  for (int number = at.begin * kChunk; number < min(at.end * kChunk, p.pixels); ++number) {
    const Pixel pixel(p, number);
    const int h = pixel.h * p.stride_h - p.pad_h + tap_h,
              w = pixel.w * p.stride_w - p.pad_w + tap_w;
    if (h < 0 || h >= p.y_h || w < 0 || w >= p.y_w) continue;
    const int64_t in_x = p.x_pixel > 0 ? int64_t{number} * p.x_pixel
                                       : int64_t{pixel.image} * p.x_image + pixel.in_plane;
    const float x = as_multiplied<M>(p.x, in_x + int64_t{at.group * p.rows + row} * p.x_channel);
    const float y = as_multiplied<M>(
        p.y, int64_t{pixel.image} * p.y_image + y_channel * p.y_plane + int64_t{h} * p.y_w + w);
    sum = fmaf(x, y, sum);
  }
  return sum;
}

// Neighbouring columns' sums, as what is stored. COUNT numbers lie at a multiple of their size.
template <class To, int COUNT>
struct alignas(sizeof(To) * COUNT) Neighbours {
  To value[COUNT];
};

// Sums to `to`, dW of the block's first channel and column; then those that are NaN once more.
template <class M, int ROW, class To>
__device__ __forceinline__ void store_sums(const Params& p, const Scope& at, const Sums<ROW>& sum,
                                           To* to) {
  constexpr Tile tile = kTiles[ROW];
  // Of words, a thread's columns of four instructions are neighbours.
  constexpr int kNumbers = M::kRow == 8 ? 4 : 2;
  constexpr int kM = row_tiles(tile), kVectors = column_tiles(tile) * 2 / kNumbers;
  const int lane = threadIdx.x % 32;
  const int rows = p.rows - at.row, columns = p.columns - at.column;
  const int first_row = warp_row<ROW>() + lane / 4;
  const auto column_of = [&](int i) {
    return warp_column<ROW>() +
           (kNumbers == 4 ? i / 2 * 32 + lane % 4 * 8 + i % 2 * 4 : i * 8 + lane % 4 * 2);
  };
  bool nan = false;
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + m * 16 + half * 8;
      if (row >= rows) continue;
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        if (column_of(i) >= columns) continue;
        Neighbours<To, kNumbers> some;
#pragma unroll
        for (int e = 0; e < kNumbers; ++e) {
          const float value =
              kNumbers == 4 ? sum[m][i / 2 * 4 + e][half * 2 + i % 2] : sum[m][i][half * 2 + e];
          nan |= value != value;
          some.value[e] = Numeric<To>::narrow(value);
        }
        *reinterpret_cast<Neighbours<To, kNumbers>*>(to + int64_t{row} * p.columns + column_of(i)) =
            some;
      }
    }
  if (!nan) return;
#pragma unroll 1
  for (int m = 0; m < kM * 2; ++m) {
    const int row = first_row + m * 8;
#pragma unroll 1
    for (int i = 0; i < kVectors * kNumbers && row < rows; ++i) {
      const int column = column_of(i / kNumbers) + i % kNumbers;
      if (column >= columns) continue;
      To* const number = to + int64_t{row} * p.columns + column;
      const float value = Numeric<To>::widen(*number);
      if (value != value) store(number, sum_with_care<M>(p, at, at.row + row, at.column + column));
    }
  }
}

template <class M, int ROW>
__global__ void __launch_bounds__(kThreads, sums(kTiles[ROW]) > 64 || M::kSplit ? 1 : 2)
    convt2d_comb_grad_weight_kernel(const __grid_constant__ Params p) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  return;  // declined by the planner
#else
  using T = typename M::Element;
  constexpr Tile tile = kTiles[ROW];
  constexpr int kStage = stage_bytes(tile, sizeof(T)), kTaps = tile.columns / (8 * kTogether);
  extern __shared__ __align__(16) unsigned char smem[];
  const uint32_t stages = shared_address(smem);
  const Scope at = scope_of(p, tile);
  const Taps<kTaps> taps(p, at.column + threadIdx.x % 8 * kTogether);
  Numbers<T, tile.rows> numbers;
  const bool odd = p.x_piece == sizeof(T);
  const auto bring = [&](int chunk, uint32_t stage) {
    if (odd) {
      numbers.bring(p, at, chunk, stage);
    } else if (p.x_piece == 16) {
      bring_x<T, 16, tile.rows>(p, at, chunk, stage);
    } else if (p.x_piece == 8) {
      bring_x<T, 8, tile.rows>(p, at, chunk, stage);
    } else if constexpr (sizeof(T) == 2) {
      bring_x<T, 4, tile.rows>(p, at, chunk, stage);
    }
    bring_y<T>(p, at, taps, chunk, stage + x_bytes(tile, sizeof(T)), y_pitch(tile, sizeof(T)));
  };
  Sums<ROW> sum = {};
  for (int i = 0; i < p.stages - 1; ++i) {
    if (at.begin + i < at.end) {
      bring(at.begin + i, stages + i * kStage);
      if (odd) numbers.put(p, stages + i * kStage);
    }
    copy_async_commit();
  }
  int here = 0, next = p.stages - 1;  // stages
  for (int chunk = at.begin; chunk < at.end; ++chunk) {
    copy_async_wait(p.stages - 2);
    __syncthreads();  // all have what they asked for, and have multiplied the chunk before
    const bool more = chunk + p.stages - 1 < at.end;
    if (more) bring(chunk + p.stages - 1, stages + next * kStage);
    copy_async_commit();
    multiply<M, ROW>(sum, stages + here * kStage);
    if (odd && more) numbers.put(p, stages + next * kStage);
    here = here + 1 == p.stages ? 0 : here + 1;
    next = next + 1 == p.stages ? 0 : next + 1;
  }
  const int64_t first =
      int64_t{at.group * p.rows + at.row} * p.columns + at.column;  // of the block's sums
  if (p.partials) {
    store_sums<M, ROW>(p, at, sum, p.partials + int64_t{at.piece} * p.piece_floats + first);
  } else {
    store_sums<M, ROW>(p, at, sum, static_cast<T*>(p.weight) + first);
  }
#endif
}

}  // namespace convt2d::cuda::comb
