// The kernel of strand's dense rows; strand_dense.h draws its operands.
//
// Units come to a ring of stages: `full` ends a phase when a unit has arrived, `empty` when every warp has multiplied its
// steps of it. Warps take turns in asking the copy engine: one that multiplies may have more registers than where one more
// asks.
#pragma once

#include "cuda/device/barrier.cuh"
#include "cuda/device/digits.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/strand/strand_dense.h"
#include "cuda/strand/strand_store.cuh"

namespace convt2d::cuda::strand {

// What a block works on: the first of the tile, and its units.
struct DenseScope {
  int column, h, w, image;
  int begin, end;
};
__device__ __forceinline__ DenseScope dense_scope(const DenseParams& p, DenseTile tile) {
  Digits number{int(blockIdx.x)};
  const int rank = blockIdx.y;
  DenseScope at;
  at.column = number.next(p.column_tiles) * tile.columns;
  at.w = number.next(p.tiles_w) << p.width_bits;
  at.h = number.next(p.tiles_h) << p.height_bits;
  at.image = number.rest * (tile.positions >> (p.width_bits + p.height_bits));
  at.begin = p.units * rank / p.ranks;
  at.end = p.units * (rank + 1) / p.ranks;
  return at;
}

// Asks for a unit.
__device__ __forceinline__ void ask_for_rows(const DenseParams& p, const DenseScope& at, int unit,
                                             const CUtensorMap& source, const CUtensorMap& weights,
                                             uint32_t stage, uint32_t full, int numbers,
                                             int weight_bytes) {
  barrier_expect(full, p.source_bytes + p.weight_boxes * weight_bytes);
  copy_box(stage, &source, full, at.w * p.base.stride_w - p.early_numbers,
           at.h * p.base.stride_h - p.base.pad_h, unit * p.planes, at.image);
#pragma unroll 1
  for (int i = 0; i < p.weight_boxes; ++i)
    copy_box(stage + p.weights_at + i * weight_bytes, &weights, full,
             (unit * p.weight_boxes + i) * numbers, at.column, 0, 0);
}

template <class M, int ROW>
struct DenseSums {
  static constexpr DenseTile tile = dense_tile(ROW, M::kSplit);
  float of[tile.sixteens][tile.eights][4];
};

// sum += of a step. `place` is of this lane's positions: its word t of the step; `halves` from there to word t + 4; `other`
// whether the lane fetches that first. `channel` is the lane's of the weights.
template <class M, int ROW>
__device__ __forceinline__ void multiply_dense(
    DenseSums<M, ROW>& sum, uint32_t source, uint32_t weights,
    const uint32_t (&place)[DenseSums<M, ROW>::tile.sixteens][2], uint32_t channel, int halves,
    bool other) {
  constexpr DenseTile tile = DenseSums<M, ROW>::tile;
  constexpr int kN = tile.eights;
  uint32_t column[kN][2];
#pragma unroll
  for (int j = 0; j + 1 < kN; j += 2) {
    uint32_t four[4];
    const uint32_t at = weights + channel + j * 8 * kDenseWeights;
    ldmatrix_x4(four, at ^ (at >> 3 & (kDenseWeights - 16)));
    column[j][0] = four[0], column[j][1] = four[1];
    column[j + 1][0] = four[2], column[j + 1][1] = four[3];
  }
  if constexpr (kN % 2 == 1) {  // of lanes 16 to 31 the addresses do not matter, if they exist
    const uint32_t at = weights + channel + (kN - 1) * 8 * kDenseWeights -
                        threadIdx.x % 32 / 16 * 8 * kDenseWeights;
    ldmatrix_x2(column[kN - 1][0], column[kN - 1][1], at ^ (at >> 3 & (kDenseWeights - 16)));
  }
  uint32_t low[kN][2];
  if constexpr (M::kSplit) {
#pragma unroll
    for (int j = 0; j < kN; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half) M::split(column[j][half], column[j][half], low[j][half]);
  }
#pragma unroll
  for (int i = 0; i < tile.sixteens; ++i) {
    uint32_t row[4];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const uint32_t first = load_shared_4(source + place[i][e]);
      const uint32_t second = load_shared_4(source + place[i][e] + halves);
      row[e] = other ? second : first;
      row[2 + e] = other ? first : second;
    }
    if constexpr (M::kSplit) {
      uint32_t rest[4];
#pragma unroll
      for (int w = 0; w < 4; ++w) M::split(row[w], row[w], rest[w]);
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        M::mma(sum.of[i][j], rest, column[j][0], column[j][1]);
        M::mma(sum.of[i][j], row, low[j][0], low[j][1]);
        M::mma(sum.of[i][j], row, column[j][0], column[j][1]);
      }
    } else {  // the copy engine has rounded
#pragma unroll
      for (int j = 0; j < kN; ++j) M::mma(sum.of[i][j], row, column[j][0], column[j][1]);
    }
  }
}

// `few` to `all`, and from zero again.
template <class M, int ROW>
__device__ __forceinline__ void fold_dense(DenseSums<M, ROW>& few, DenseSums<M, ROW>& all) {
#pragma unroll
  for (int i = 0; i < DenseSums<M, ROW>::tile.sixteens; ++i)
#pragma unroll
    for (int j = 0; j < DenseSums<M, ROW>::tile.eights; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        all.of[i][j][e] += few.of[i][j][e];
        few.of[i][j][e] = 0;
      }
}

// Four neighbouring channels of a position of the tile.
template <class M>
__device__ __forceinline__ void store_dense(const DenseParams& p, const DenseScope& at,
                                            int position, int channel,
                                            const float (&value)[kTogether]) {
  using T = typename M::Element;
  const int w = at.w + (position & ((1 << p.width_bits) - 1));
  const int h = at.h + (position >> p.width_bits & ((1 << p.height_bits) - 1));
  const int image = at.image + (position >> (p.width_bits + p.height_bits));
  if (h >= p.x_h || w >= p.x_w || image >= p.images) return;
  const int pixel = h * p.x_w + w, first = at.column + channel;
  T* const to = static_cast<T*>(p.base.destination) + (int64_t{image} * p.base.x_image + pixel);
#pragma unroll
  for (int i = 0; i < kTogether; ++i)
    if (first + i < p.base.rows) {
      float sum = value[i];
      if (sum != sum)
        sum = sum_with_care<M>(p.base, Scope{}, first + i, image * p.x_h * p.x_w + pixel);
      store(to + int64_t{first + i} * p.base.x_channel, sum);
    }
}

// The sums of teams, then of ranks, in a fixed order. All threads of all blocks come here.
template <class M, int ROW>
__device__ __forceinline__ void add_and_store_dense(const DenseParams& p, const DenseScope& at,
                                                    uint32_t sums) {
  constexpr DenseTile tile = DenseSums<M, ROW>::tile;
  constexpr int kItems = tile.positions * tile.columns / kTogether;
  // Neighbouring threads have neighbouring positions, as dX has.
  const auto place = [&](int i) {
    return sums + i % tile.positions * (dense_sum_pitch(tile) * 4) + i / tile.positions * 16;
  };
  if constexpr (dense_teams(tile) > 1) {
#pragma unroll 1
    for (int i = threadIdx.x; i < kItems; i += kDenseThreads) {
      uint32_t all[kTogether];
      load_shared_16(place(i), all);
#pragma unroll
      for (int t = 1; t < dense_teams(tile); ++t) {
        uint32_t word[kTogether];
        load_shared_16(place(i) + t * dense_sum_bytes(tile), word);
#pragma unroll
        for (int n = 0; n < kTogether; ++n)
          all[n] = __float_as_uint(__uint_as_float(all[n]) + __uint_as_float(word[n]));
      }
      store_shared_16(place(i), all);
    }
  }
  if (p.ranks > 1) {
    cluster_arrive();
    cluster_wait();
  }
  // Alone, a thread has what it added itself.
  const int rank = blockIdx.y, end = kItems * (rank + 1) / p.ranks;
#pragma unroll 1
  for (int i = kItems * rank / p.ranks + threadIdx.x; i < end; i += kDenseThreads) {
    float value[kTogether] = {};
    if (p.ranks > 1) {
#pragma unroll 4
      for (int r = 0; r < p.ranks; ++r) {
        const float4 some = load_of_rank(place_of_rank(place(i), r));
        value[0] += some.x, value[1] += some.y, value[2] += some.z, value[3] += some.w;
      }
    } else {
      uint32_t word[kTogether];
      load_shared_16(place(i), word);
#pragma unroll
      for (int n = 0; n < kTogether; ++n) value[n] = __uint_as_float(word[n]);
    }
    store_dense<M>(p, at, i % tile.positions, i / tile.positions * kTogether, value);
  }
  if (p.ranks > 1) {  // this block has read; it leaves when all have
    cluster_arrive_as_reader();
    cluster_wait();
  }
}

template <class M, int ROW>
__global__ void __launch_bounds__(kDenseThreads, 1)
    convt2d_strand_dense_kernel(const __grid_constant__ DenseParams p,
                                const __grid_constant__ CUtensorMap source,
                                const __grid_constant__ CUtensorMap weights) {
#ifdef CONVT2D_HAS_WGMMA
  constexpr DenseTile tile = DenseSums<M, ROW>::tile;
  constexpr int kTeams = dense_teams(tile), kRowGroups = tile.positions / 16 / tile.sixteens;
  constexpr int kSize = sizeof(typename M::Element);
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32_t shared = shared_address(smem), stages = shared + p.stages_at;
  const DenseScope at = dense_scope(p, tile);
  const auto full = [&](int stage) { return shared + stage * 16; };
  const auto ask = [&](int unit, int stage) {
    ask_for_rows(p, at, unit, source, weights, stages + stage * p.stage_bytes, full(stage),
                 kDenseWeights / kSize, tile.columns * kDenseWeights);
  };
  if (threadIdx.x == 0) {
    prefetch_map(&source);
    prefetch_map(&weights);
#pragma unroll 1
    for (int i = 0; i < p.stages; ++i) {
      barrier_init(full(i), 1);
      barrier_init(full(i) + 8, kDenseWarps);
    }
    fence_for_wgmma();  // for the copy engine
#pragma unroll 1
    for (int i = 0; i < p.stages && at.begin + i < at.end; ++i) ask(at.begin + i, i);
  }
  // The steps of a unit: where dY's first word and the 32 bytes of weights are.
  if (threadIdx.x >= 32)
#pragma unroll 1
    for (int i = threadIdx.x - 32; i < p.steps; i += kDenseThreads - 32) {
      const int bytes = i * kStep, of_plane = p.kernel_h * p.kernel_row;
      const int plane = bytes / of_plane, inside = bytes - plane * of_plane;
      const int row = inside / p.kernel_row;
      store_shared_4(shared + p.table_at + i * 8,
                     plane * p.plane_pitch + row * p.row_pitch + inside - row * p.kernel_row);
      store_shared_4(shared + p.table_at + i * 8 + 4,
                     p.weights_at + bytes / kDenseWeights * (tile.columns * kDenseWeights) +
                         bytes % kDenseWeights);
    }
  __syncthreads();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = warp / kTeams;
  const int team = warp % kTeams, first = group % kRowGroups * tile.sixteens * 16,
            first_column = group / kRowGroups * tile.eights * 8;
  const int t = lane % 4;
  const bool other = p.swapped && lane >= 16;
  uint32_t place[tile.sixteens][2];
#pragma unroll
  for (int i = 0; i < tile.sixteens; ++i)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int number = first + i * 16 + e * 8 + lane / 4;
      const int w = number & ((1 << p.width_bits) - 1);
      const int h = number >> p.width_bits & ((1 << p.height_bits) - 1);
      const int image = number >> (p.width_bits + p.height_bits);
      place[i][e] = image * p.image_pitch + h * p.base.stride_h * p.row_pitch +
                    w * p.position_step + p.early + t * 4 + t / 2 * p.lane_row +
                    (other ? p.half : 0);
    }
  const int halves = other ? -p.half : p.half;
  const uint32_t channel =
      (first_column + lane / 16 * 8 + lane % 8) * kDenseWeights + lane / 8 % 2 * 16;
  const uint32_t table = shared + p.table_at;
  DenseSums<M, ROW> sum = {}, few = {};
  Ring ring, before;
  int added = 0;
#pragma unroll 1
  for (int unit = at.begin; unit < at.end; ++unit) {
    barrier_wait(full(ring.stage), ring.parity);
    const uint32_t stage = stages + ring.stage * p.stage_bytes;
#pragma unroll 1
    for (int step = team; step < p.steps; step += kTeams) {
      uint32_t here[2];
      load_shared_8(table + step * 8, here);
      multiply_dense<M, ROW>(M::kSplit ? few : sum, stage + here[0], stage + here[1], place,
                             channel, halves, other);
      if constexpr (M::kSplit)
        if (++added == MmaF32x3::kFoldSteps) added = 0, fold_dense<M, ROW>(few, sum);
    }
    __syncwarp();
    if (lane == 0) {
      barrier_arrive(full(ring.stage) + 8);
      // What comes where the unit before this one was, which the others have left by now or soon will.
      if (const int next = unit - 1 + p.stages;
          unit > at.begin && next < at.end && unit % kDenseWarps == warp) {
        barrier_wait(full(before.stage) + 8, before.parity);
        ask(next, before.stage);
      }
    }
    __syncwarp();
    before = ring;
    ring.advance(p.stages);
  }
  if constexpr (M::kSplit) fold_dense<M, ROW>(few, sum);
  __syncthreads();
  const uint32_t to = stages + team * dense_sum_bytes(tile) +
                      (first + lane / 4) * (dense_sum_pitch(tile) * 4) + first_column * 4 + t * 8;
#pragma unroll
  for (int i = 0; i < tile.sixteens; ++i)
#pragma unroll
    for (int j = 0; j < tile.eights; ++j) {
      const uint32_t line = to + i * 16 * (dense_sum_pitch(tile) * 4) + j * 32;
      store_shared_sums(line, sum.of[i][j][0], sum.of[i][j][1]);
      store_shared_sums(line + 8 * (dense_sum_pitch(tile) * 4), sum.of[i][j][2], sum.of[i][j][3]);
    }
  __syncthreads();
  add_and_store_dense<M, ROW>(p, at, stages);
#endif
}

}  // namespace convt2d::cuda::strand
