// The reed kernel; reed_config.h draws the GEMM.
//
// All warps of a block ask for a chunk of K (cp.async) a few chunks ahead, then multiply the one that is there.
#pragma once

#include "cuda/reed/reed_store.cuh"

namespace convt2d::cuda::reed {

// The operands of a warp's first instruction at the beginning of a stage.
template <class M, int ROW>
__device__ __forceinline__ uint32_t first_rows() {
  using T = typename M::Element;
  constexpr int kPitch = w_pitch(kTiles[ROW], sizeof(T));
  const int lane = threadIdx.x % 32;
  return M::kRow == 8
             ? lane % 4 * kPitch + (warp_row<ROW>() + lane / 4 * 2) * 4
             : (lane % 8 + lane / 16 * 8) * kPitch + (warp_row<ROW>() + lane / 8 % 2 * 8) * 2;
}
template <class M, int ROW>
__device__ __forceinline__ uint32_t first_columns() {
  const int lane = threadIdx.x % 32;
  return w_bytes(kTiles[ROW], sizeof(typename M::Element)) +
         (warp_column<ROW>() + lane % 8 + lane / 16 * 8) * kXPitch + lane / 8 % 2 * 16;
}

// 16 rows of an instruction, from where the first of them are; of words, a thread has neighbours.
template <class M, int ROW>
__device__ __forceinline__ void load_rows(uint32_t (&word)[4], uint32_t from) {
  using T = typename M::Element;
  if constexpr (M::kRow == 8) {
    uint32_t low[2], high[2];
    load_shared_8(from, low);
    load_shared_8(from + 4 * w_pitch(kTiles[ROW], sizeof(T)), high);
    word[0] = low[0], word[1] = low[1], word[2] = high[0], word[3] = high[1];
  } else {
    ldmatrix_x4_turned(word, from);
  }
}

// The first `steps` of COUNT steps of 32 bytes of K.
template <class M, int ROW, int COUNT>
__device__ __forceinline__ void multiply(Sums<ROW>& sum, uint32_t w, uint32_t x, int steps) {
  using T = typename M::Element;
  constexpr Tile tile = kTiles[ROW];
  constexpr int kM = row_tiles(tile), kN = column_tiles(tile);
  constexpr int kStep = M::kRow * w_pitch(tile, sizeof(T));
  static_assert(kN % 2 == 0);
#pragma unroll
  for (int step = 0; step < COUNT; ++step) {
    if (step >= steps) break;
    uint32_t columns[kN][2], low[M::kSplit ? kN : 1][2];
#pragma unroll
    for (int j = 0; j < kN; j += 2) {
      uint32_t two[4];
      ldmatrix_x4(two, x + j * 8 * kXPitch + step * 32);
      columns[j][0] = two[0], columns[j][1] = two[1];
      columns[j + 1][0] = two[2], columns[j + 1][1] = two[3];
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
    for (int i = 0; i < kM; ++i) {
      uint32_t rows[4];
      load_rows<M, ROW>(rows, w + step * kStep + i * 16 * int(sizeof(T)));
      if constexpr (M::kSplit) {
        uint32_t rest[4];
#pragma unroll
        for (int v = 0; v < 4; ++v) M::split(rows[v], rows[v], rest[v]);
#pragma unroll
        for (int j = 0; j < kN; ++j) {
          M::mma(sum[i][j], rest, columns[j][0], columns[j][1]);
          M::mma(sum[i][j], rows, low[j][0], low[j][1]);
          M::mma(sum[i][j], rows, columns[j][0], columns[j][1]);
        }
      } else {
#pragma unroll
        for (int v = 0; v < 4; ++v) rows[v] = M::round(rows[v]);
#pragma unroll
        for (int j = 0; j < kN; ++j) M::mma(sum[i][j], rows, columns[j][0], columns[j][1]);
      }
    }
  }
}

// The same; strict fp32 sums them apart.
template <class M, int ROW, int COUNT>
__device__ __forceinline__ void multiply_part(Sums<ROW>& sum, uint32_t w, uint32_t x, int steps) {
  if constexpr (M::kSplit) {
    static_assert(COUNT == MmaF32x3::kFoldSteps);
    Sums<ROW> of_part = {};
    multiply<M, ROW, COUNT>(of_part, w, x, steps);
#pragma unroll
    for (int i = 0; i < row_tiles(kTiles[ROW]); ++i)
#pragma unroll
      for (int j = 0; j < column_tiles(kTiles[ROW]); ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) sum[i][j][e] += of_part[i][j][e];
  } else {
    multiply<M, ROW, COUNT>(sum, w, x, steps);
  }
}

template <class M, int ROW>
__global__ void __launch_bounds__(threads_of(kTiles[ROW]), side_by_side(kTiles[ROW], M::kSplit))
    convt2d_reed_fwd_kernel(const __grid_constant__ Params p) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  return;  // declined by the planner
#else
  using T = typename M::Element;
  constexpr Tile tile = kTiles[ROW];
  constexpr int kStage = stage_bytes(tile, sizeof(T)), kChunk = chunk_of(sizeof(T));
  constexpr bool kHalf = sizeof(T) == 2;
  constexpr int kParts = kHalf ? parts_of(tile) : 1;
  extern __shared__ __align__(16) unsigned char smem[];
  const uint32_t places = shared_address(smem), rows = places + tile.columns * 16,
                 bias = rows + tile.rows * 16, stages = bias + tile.rows * 4;
  const Scope at = scope_of(p, tile);
  const WeightRow weight_row(p, at, tile.rows, p.w_piece / int(sizeof(T)));
  const auto bring_w = [&](const Walk& walk, uint32_t stage) {
    if (p.w_piece == 16) {
      bring_weights<T, 16, ROW>(p, weight_row, walk, stage);
    } else if (p.w_piece == 8) {
      bring_weights<T, 8, ROW>(p, weight_row, walk, stage);
    } else {
      bring_weights<T, 4, ROW>(p, weight_row, walk, stage);
    }
  };
  // What comes asynchronously.
  const auto bring_x = [&](const Walk& walk, uint32_t to) {
    if (p.way == kVectors) {
      bring_vectors<T, ROW>(p, places, walk, to);
    } else if constexpr (!kHalf) {
      bring_words<ROW>(p, places, walk, to);
    }
  };
  Numbers<ROW> numbers;
  const bool by_number = kHalf && p.way == kNumbers;
  const auto steps_of = [&](const Walk& walk) {
    return (p.terms - walk.channel + M::kRow - 1) / M::kRow;
  };
  constexpr int kXPlace = w_bytes(tile, sizeof(T));

  Walk next, here;
  bring_w(next, stages);  // while the table is written
  write_places(p, at, tile, places);
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
      if constexpr (kHalf)
        if (by_number)
#pragma unroll 1
          for (int part = 0; part < kParts; ++part) {
            numbers.load(p, places, next, part);
            numbers.put(stage + kXPlace, part);
          }
      next.advance(p, kChunk);
    }
    copy_async_commit();
  }
  Sums<ROW> sum = {};
  const uint32_t w = first_rows<M, ROW>(), x = first_columns<M, ROW>();
  constexpr int kStep = M::kRow * w_pitch(tile, sizeof(T));
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
    constexpr int kMine = kSteps / kParts;  // steps at once
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const int first = part * kMine;
      if constexpr (kHalf)
        if (by_number && more) numbers.load(p, places, next, part);
      multiply_part<M, ROW, kMine>(sum, w + stage + first * kStep, x + stage + first * 32,
                                   steps - first);
      if constexpr (kHalf)
        if (by_number && more) numbers.put(ahead + kXPlace, part);
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
