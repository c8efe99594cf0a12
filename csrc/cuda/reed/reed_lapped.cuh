// The kernel of reed's lapped tiles; reed_lapped.h draws the GEMM.
//
// One thread asks for stages, `full` ends a phase when one has arrived, `empty` when every warp has multiplied it.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/barrier.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/reed/reed_lapped.h"

namespace convt2d::cuda::reed {

// Of a warp: 64 rows, half of which are taps below the stride, and the segment.
constexpr int kLappedPairs = 4, kLappedEights = kSegment / 8;
using LappedSums = float[kLappedPairs][kLappedEights][4];

// The first of eight rows of a tile whose partners lie `hop` behind.
__device__ __forceinline__ int first_of_pair(const Lapped& p, int pair) {
  const int row = pair * 8;
  return row >> p.hop_bits << (p.hop_bits + 1) | (row & ((1 << p.hop_bits) - 1));
}

// The output channel of a row of w in NCHW, whose strides are powers of two.
__device__ __forceinline__ int output_of(const Lapped& p, int row) {
  return row >> (p.hop_bits + 1);
}

// Where a row of a chunk's weights has its number `k`, after the swizzle.
template <class T>
__device__ __forceinline__ uint32_t weight_place(int row, int k) {
  constexpr int kRows = kChunkBytes / int(sizeof(T));
  return row / kRows * (chunk_of(sizeof(T)) * kChunkBytes) + k * kChunkBytes +
         (row % kRows * int(sizeof(T)) ^ k % 8 * 16);
}

// What a block works on: of channels last a tap and channels, else rows of w.
struct LappedScope {
  int row, tap, segment;
};

template <class T, bool PIXELS>
__device__ __forceinline__ void ask_for_chunk(const Lapped& p, const LappedScope& at, int chunk,
                                              const CUtensorMap& source, const CUtensorMap& weights,
                                              uint32_t stage, uint32_t full) {
  constexpr int kRows = kChunkBytes / int(sizeof(T)), kBoxes = kLappedRows / kRows;
  const int k = chunk * chunk_of(sizeof(T));
  barrier_expect(full, kLappedStage);
#pragma unroll 1
  for (int i = 0; i < kBoxes; ++i) {
    const int second = PIXELS ? i / (kBoxes / 2) : 0;  // whether the taps a stride behind
    copy_box(stage + i * (kLappedWeights / kBoxes), &weights, full,
             at.row + (PIXELS ? i % (kBoxes / 2) : i) * kRows, at.tap + second * p.stride, k, 0);
  }
#pragma unroll 1
  for (int i = 0; i < kSegments; ++i) {
    const int row = p.by_row.quotient(at.segment + i), image = p.by_image.quotient(row);
    const int pixel = (at.segment + i - row * int(p.by_row.divisor)) * (kSegment - p.lap);
    copy_box(stage + kLappedWeights + i * (kLappedWeights / kSegments), &source, full,
             PIXELS ? k : pixel, PIXELS ? pixel : k, row - image * int(p.by_image.divisor), image);
  }
}

// sum += of a chunk. weight: this lane's place of each pair's rows, for words also of their partners; pixel: of the segment.
// Words k and k + 4 of a step are exchanged in odd lanes of four, so that a warp's lie in all banks.
template <class M, bool PIXELS>
__device__ __forceinline__ void multiply_lapped(LappedSums& sum, uint32_t stage,
                                                const uint32_t (&weight)[kLappedPairs][2],
                                                uint32_t pixel) {
  using T = typename M::Element;
  constexpr bool kWords = sizeof(T) == 4;
  constexpr int kOther = 4 * kChunkBytes ^ 4 * 16;  // to word k + 4 or k - 4
  const bool odd = threadIdx.x % 2;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    uint32_t column[kLappedEights][2];
#pragma unroll
    for (int j = 0; j < kLappedEights; j += 2) {
      if constexpr (PIXELS || !kWords) {
        uint32_t four[4];
        if constexpr (PIXELS) {
          ldmatrix_x4(four, stage + (pixel ^ step * 32) + j * 8 * kChunkBytes);
        } else {
          ldmatrix_x4_turned(four, stage + (pixel ^ j * 16) + step * M::kRow * kSegment * 2);
        }
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
          for (int half = 0; half < 2; ++half)
            column[j + i][half] =
                kWords ? (odd ? four[i * 2 + 1 - half] : four[i * 2 + half]) : four[i * 2 + half];
      } else {
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
          for (int half = 0; half < 2; ++half)
            column[j + i][half] = load_shared_4(stage + (pixel ^ (j + i) * 32 ^ half * kOther) +
                                                step * 8 * kChunkBytes);
      }
    }
#pragma unroll
    for (int i = 0; i < kLappedPairs; ++i) {
      uint32_t row[4];
      const int further = step * M::kRow * kChunkBytes;
      if constexpr (kWords) {
#pragma unroll
        for (int v = 0; v < 4; ++v)
          row[v] = load_shared_4(stage + (weight[i][v % 2] ^ v / 2 * kOther) + further);
      } else {
        ldmatrix_x4_turned(row, stage + weight[i][0] + further);
      }
#pragma unroll
      for (int j = 0; j < kLappedEights; ++j) M::mma(sum[i][j], row, column[j][0], column[j][1]);
    }
  }
}

// The two products of each output added, and what comes of them to y. In 16 bits lanes exchange theirs, so that each has two
// neighbours of y.
template <class M, bool PIXELS>
__device__ __forceinline__ void store_lapped(const Lapped& p, const LappedScope& at,
                                             const LappedSums& sum, int first_pair, int segment,
                                             const float (&bias)[kLappedPairs]) {
  using T = typename M::Element;
  constexpr bool kHalf = sizeof(T) == 2;
  const int number = at.segment + segment, x_row = p.by_row.quotient(number);
  if (x_row >= p.rows) return;
  const int first = (number - x_row * int(p.by_row.divisor)) * (kSegment - p.lap);
  const int image = p.by_image.quotient(x_row);
  T* const y = static_cast<T*>(p.y) + int64_t{image} * p.y_image +
               (x_row - image * int(p.by_image.divisor)) * p.y_row;
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int left = p.x_w - first;  // pixels from the segment's first one on
  // Of a row of the pair, and of a column: whether it is stored here, and where.
  const auto row_of = [&](int pair, int row, int& phase) -> T* {
    row += first_of_pair(p, pair);
    int output;
    if constexpr (PIXELS) {
      phase = at.tap, output = at.row + row;
    } else {
      output = output_of(p, at.row + row), phase = (at.row + row) & ((2 << p.hop_bits) - 1);
    }
    return output < p.outputs ? y + output * p.y_channel : nullptr;
  };
  const auto there = [&](int column) { return column <= left && (column >= p.lap || first == 0); };
  const auto place = [&](T* row, int phase, int column) -> T* {
    const int pixel = (first + column) * p.stride + phase - p.pad;
    return row && there(column) && unsigned(pixel) < unsigned(p.y_w) ? row + pixel * p.y_pixel
                                                                     : nullptr;
  };
#pragma unroll
  for (int i = 0; i < kLappedPairs; ++i) {
    int phase;
    T* const row = row_of(first_pair + i, kHalf ? 2 * t : g, phase);
    float last = 0;  // of lane t = 3, the latter product of the eight before
#pragma unroll
    for (int j = 0; j < kLappedEights; ++j) {
      const int column = j * 8 + 2 * t;
      // What is beside x has no products, not even of zero.
      const float before =
          __shfl_sync(~0u, t == 3 ? last : sum[i][j][3], (lane & ~3) | ((lane + 3) & 3));
      last = sum[i][j][3];
      float value[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float former = column + e < left ? sum[i][j][e] : 0.f;
        const float latter =
            column + e > 0 && column + e <= left ? (e ? sum[i][j][2] : before) : 0.f;
        value[e] = former + latter + bias[i];
      }
      if constexpr (kHalf) {
        const uint32_t pair = turn_tile(pack<T>(value[0], value[1]));
        if (T* const to = place(row, phase, j * 8 + g)) *reinterpret_cast<uint32_t*>(to) = pair;
      } else {
#pragma unroll
        for (int e = 0; e < 2; ++e)
          if (T* const to = place(row, phase, column + e)) *to = value[e];
      }
    }
    if (left == kSegment && t == 3) {  // of the last pixel of x, the latter product
      T* const own = kHalf ? row_of(first_pair + i, g, phase) : row;
      if (T* const to = place(own, phase, kSegment)) *to = Numeric<T>::narrow(last + bias[i]);
    }
  }
}

template <class M, bool PIXELS>
__global__ void __launch_bounds__(kLappedThreads, 1)
    convt2d_reed_lapped_kernel(const __grid_constant__ Lapped p,
                               const __grid_constant__ CUtensorMap source,
                               const __grid_constant__ CUtensorMap weights) {
#ifdef CONVT2D_HAS_WGMMA
  using T = typename M::Element;
  constexpr bool kWords = sizeof(T) == 4;
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32_t barriers = shared_address(smem), stages = barriers + 1024;
  const auto full = [&](int stage) { return barriers + stage * 16; };
  const int column_tile = blockIdx.x / p.row_tiles,
            row_tile = blockIdx.x - column_tile * p.row_tiles;
  LappedScope at;
  at.segment = column_tile * kSegments;
  at.row = PIXELS ? row_tile / p.stride * (kLappedRows / 2) : row_tile * kLappedRows;
  at.tap = PIXELS ? row_tile % p.stride : 0;
  const auto ask = [&](int chunk, int stage) {
    ask_for_chunk<T, PIXELS>(p, at, chunk, source, weights, stages + stage * kLappedStage,
                             full(stage));
  };
  constexpr int kAsker = kLappedThreads - 32;
  if (threadIdx.x == kAsker) {
    prefetch_map(&weights);
    prefetch_map(&source);
#pragma unroll 1
    for (int i = 0; i < kLappedStages; ++i) {
      barrier_init(full(i), 1);
      barrier_init(full(i) + 8, kLappedWarps);
    }
    fence_for_wgmma();  // for the copy engine
    ask(0, 0);
  }
  __syncthreads();
  if (threadIdx.x >= kAsker) {
    if (threadIdx.x == kAsker) {
#pragma unroll 1
      for (int chunk = 1; chunk < min(kLappedStages, p.chunks); ++chunk) ask(chunk, chunk);
      Ring ring;
#pragma unroll 1
      for (int chunk = kLappedStages; chunk < p.chunks; ++chunk) {
        barrier_wait(full(ring.stage) + 8, ring.parity);
        ask(chunk, ring.stage);
        ring.advance(kLappedStages);
      }
    }
    return;
  }
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int first_pair = warp % 2 * kLappedPairs, segment = warp / 2;
  const int k = t + t % 2 * 4;  // a lane's word of a step, the other one four from there
  uint32_t weight[kLappedPairs][2];
  float bias[kLappedPairs];
#pragma unroll
  for (int i = 0; i < kLappedPairs; ++i) {
    const int first = first_of_pair(p, first_pair + i), partner = 1 << p.hop_bits;
    if constexpr (kWords) {
      weight[i][0] = weight_place<T>(first + g, k);
      weight[i][1] = weight_place<T>(first + partner + g, k);
    } else {
      weight[i][0] = weight_place<T>(first + lane / 8 % 2 * partner, lane / 16 * 8 + lane % 8);
    }
    const int output = PIXELS ? at.row + first + g : output_of(p, at.row + first);
    bias[i] = p.bias && output < p.outputs
                  ? Numeric<T>::widen(static_cast<const T*>(p.bias)[output])
                  : 0.f;
  }
  uint32_t pixel = kLappedWeights + segment * (kLappedWeights / kSegments);
  if constexpr (PIXELS) {
    pixel += (lane / 16 * 8 + lane % 8) * kChunkBytes + (lane / 8 % 2 ^ lane % 8) * 16;
  } else if constexpr (kWords) {
    pixel += k * kChunkBytes + (g / 4 ^ k) * 16 + g % 4 * 4;
  } else {
    const int row = lane / 8 % 2 * 8 + lane % 8;
    pixel += row * kSegment * 2 + (lane / 16 ^ row / 2 % 4) * 16;
  }
  LappedSums sum = {};
  Ring ring;
#pragma unroll 1
  for (int chunk = 0; chunk < p.chunks; ++chunk) {
    barrier_wait(full(ring.stage), ring.parity);
    multiply_lapped<M, PIXELS>(sum, stages + ring.stage * kLappedStage, weight, pixel);
    __syncwarp();
    if (lane == 0) barrier_arrive(full(ring.stage) + 8);
    ring.advance(kLappedStages);
  }
  store_lapped<M, PIXELS>(p, at, sum, first_pair, segment, bias);
#endif
}

}  // namespace convt2d::cuda::reed
