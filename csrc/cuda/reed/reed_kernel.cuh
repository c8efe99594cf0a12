// The reed kernel; reed_config.h draws the GEMM.
//
// All warps of a block ask for a chunk of K (cp.async) a few chunks ahead, then multiply the one that is there.
#pragma once

#include "cuda/reed/reed_store.cuh"

namespace convt2d::cuda::reed {

// Rows of two instructions of 16, as words: a thread has 16 bytes of a number of K for four of them. `step`: of 32 bytes
// of K.
template <class T, int ROW>
__device__ __forceinline__ void load_rows(uint32_t (&word)[2][4], uint32_t w, int step, int tile) {
  constexpr int kPitch = w_pitch(kTiles[ROW], sizeof(T));
  const int lane = threadIdx.x % 32;
  if constexpr (sizeof(T) == 4) {
    w += (step * 8 + lane % 4) * kPitch + (warp_row<ROW>() + tile * 16 + lane / 4 * 4) * 4;
    uint32_t low[4], high[4];
    load_shared_16(w, low);
    load_shared_16(w + 4 * kPitch, high);
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < 2; ++j) word[i][j] = low[2 * i + j], word[i][2 + j] = high[2 * i + j];
  } else {
    w += (step * 16 + lane % 8 + lane / 16 * 8) * kPitch +
         (warp_row<ROW>() + tile * 16 + lane / 8 % 2 * 8) * 2;
    ldmatrix_x4_turned(word[0], w);
    ldmatrix_x4_turned(word[1], w + 32);
  }
}

// Steps [first, last) of a chunk.
template <class M, int ROW>
__device__ __forceinline__ void multiply(Sums<ROW>& sum, uint32_t stage, int first, int last) {
  using T = typename M::Element;
  constexpr Tile tile = kTiles[ROW];
  constexpr int kM = row_tiles(tile), kN = column_tiles(tile);
  static_assert(kM % 2 == 0 && kN % 2 == 0);
  const int lane = threadIdx.x % 32;
  const uint32_t x = stage + w_bytes(tile, sizeof(T)) + (warp_column<ROW>() + lane % 16) * kXPitch +
                     lane / 16 * 16;
#pragma unroll 2
  for (int step = first; step < last; ++step) {
    uint32_t columns[kN][2], low[M::kSplit ? kN : 1][2];
#pragma unroll
    for (int j = 0; j < kN; j += 2) {
      uint32_t two[4];
      ldmatrix_x4(two, x + j * 8 * kXPitch + step * 32);
      columns[j][0] = two[0], columns[j][1] = two[2];
      columns[j + 1][0] = two[1], columns[j + 1][1] = two[3];
    }
#pragma unroll
    for (int j = 0; j < kN; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if constexpr (M::kSplit) {
          M::split(columns[j][half], columns[j][half], low[j][half]);
        } else {
          columns[j][half] = M::round(columns[j][half]);
        }
      }
#pragma unroll
    for (int i = 0; i < kM; i += 2) {
      uint32_t rows[2][4];
      load_rows<T, ROW>(rows, stage, step, i);
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        if constexpr (M::kSplit) {
          uint32_t rest[4];
#pragma unroll
          for (int v = 0; v < 4; ++v) M::split(rows[b][v], rows[b][v], rest[v]);
#pragma unroll
          for (int j = 0; j < kN; ++j) {
            M::mma(sum[i + b][j], rest, columns[j][0], columns[j][1]);
            M::mma(sum[i + b][j], rows[b], low[j][0], low[j][1]);
            M::mma(sum[i + b][j], rows[b], columns[j][0], columns[j][1]);
          }
        } else {
#pragma unroll
          for (int v = 0; v < 4; ++v) rows[b][v] = M::round(rows[b][v]);
#pragma unroll
          for (int j = 0; j < kN; ++j) M::mma(sum[i + b][j], rows[b], columns[j][0], columns[j][1]);
        }
      }
    }
  }
}

// A chunk; strict fp32 sums it apart.
template <class M, int ROW>
__device__ __forceinline__ void multiply_chunk(Sums<ROW>& sum, uint32_t stage, int first,
                                               int last) {
  if constexpr (M::kSplit) {
    static_assert(kSteps == MmaF32x3::kFoldSteps);
    Sums<ROW> of_chunk = {};
    multiply<M, ROW>(of_chunk, stage, first, last);
#pragma unroll
    for (int i = 0; i < row_tiles(kTiles[ROW]); ++i)
#pragma unroll
      for (int j = 0; j < column_tiles(kTiles[ROW]); ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) sum[i][j][e] += of_chunk[i][j][e];
  } else {
    multiply<M, ROW>(sum, stage, first, last);
  }
}

template <class M, int ROW>
__global__ void __launch_bounds__(kThreads, sums(kTiles[ROW]) > 64 || M::kSplit ? 1 : 2)
    convt2d_reed_fwd_kernel(const __grid_constant__ Params p) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  return;  // declined by the planner
#else
  using T = typename M::Element;
  constexpr Tile tile = kTiles[ROW];
  constexpr int kStage = stage_bytes(tile, sizeof(T)), kChunk = chunk_of(sizeof(T));
  constexpr bool kHalves = sizeof(T) == 2;
  extern __shared__ __align__(16) unsigned char smem[];
  const uint32_t places = shared_address(smem), rows = places + tile.columns * 16,
                 bias = rows + tile.rows * 16, stages = bias + tile.rows * 4;
  const Scope at = scope_of(p, tile);
  const WeightRow weight_row(p, at, tile.rows, p.w_piece / int(sizeof(T)));
  const auto bring_w = [&](const Walk& walk, uint32_t stage) {
    if (p.w_piece == 16) {
      bring_weights<T, 16, tile.rows>(p, weight_row, walk, stage);
    } else if (p.w_piece == 8) {
      bring_weights<T, 8, tile.rows>(p, weight_row, walk, stage);
    } else {
      bring_weights<T, 4, tile.rows>(p, weight_row, walk, stage);
    }
  };
  // What comes asynchronously.
  const auto bring_x = [&](const Walk& walk, uint32_t to) {
    if (p.way == kVectors) {
      bring_vectors<T, tile.columns>(p, places, walk, to);
    } else if constexpr (!kHalves) {
      bring_words<tile.columns>(p, places, walk, to);
    }
  };
  Numbers<kHalves ? tile.columns : 1> numbers;
  const bool by_number = kHalves && p.way == kNumbers;
  const auto steps_of = [&](const Walk& walk) {
    return min(kSteps, (p.terms - walk.channel + M::kRow - 1) / M::kRow);
  };
  constexpr int kXPlace = w_bytes(tile, sizeof(T));

  Walk next, here;
  bring_w(next, stages);  // while the table is written
  write_places(p, at, tile.columns, places);
  float of_row = 0;
  if (threadIdx.x < tile.rows) {
    const RowOf row(p, at.row + threadIdx.x);
    if (p.bias && has_row(p, at, threadIdx.x))
      of_row = load(static_cast<const T*>(p.bias) + at.group * p.group_out + row.output(p));
  }
  __syncthreads();
  for (int i = 0; i < p.stages - 1; ++i) {
    if (i < p.chunks) {
      const uint32_t stage = stages + i * kStage;
      if (i > 0) bring_w(next, stage);
      bring_x(next, stage + kXPlace);
      if constexpr (kHalves)
        if (by_number)
#pragma unroll 1
          for (int half = 0; half < 2; ++half) {
            numbers.load(p, places, next, half);
            numbers.put(stage + kXPlace, half);
          }
      next.advance(p, kChunk);
    }
    copy_async_commit();
  }
  Sums<ROW> sum = {};
  int from = 0, to = p.stages - 1;  // stages
#pragma unroll 1
  for (int chunk = 0; chunk < p.chunks; ++chunk) {
    copy_async_wait(p.stages - 2);
    __syncthreads();  // all have what they asked for, and have multiplied the chunk before
    const bool more = chunk + p.stages - 1 < p.chunks;
    const uint32_t stage = stages + from * kStage, ahead = stages + to * kStage;
    if (more) {
      bring_w(next, ahead);
      bring_x(next, ahead + kXPlace);
    }
    copy_async_commit();
    const int steps = steps_of(here);
    if constexpr (kHalves) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (by_number && more) numbers.load(p, places, next, half);
        multiply_chunk<M, ROW>(sum, stage, half * (kSteps / 2),
                               min(steps, (half + 1) * (kSteps / 2)));
        if (by_number && more) numbers.put(ahead + kXPlace, half);
      }
    } else {
      multiply_chunk<M, ROW>(sum, stage, 0, steps);
    }
    if (more) next.advance(p, kChunk);
    here.advance(p, kChunk);
    from = from + 1 == p.stages ? 0 : from + 1;
    to = to + 1 == p.stages ? 0 : to + 1;
  }
  copy_async_wait(0);
  if (threadIdx.x < tile.rows) store_shared_4(bias + threadIdx.x * 4, __float_as_uint(of_row));
  __syncthreads();  // sums lie where the stages were
  store_sums<M, ROW>(p, at, sum, places, rows, bias, stages);
#endif
}

}  // namespace convt2d::cuda::reed
