// The strand kernel; strand_config.h draws the GEMM.
//
// All warps of a block ask for a chunk of K (cp.async) a few chunks ahead, then multiply their team's steps of the one
// that is there.
#pragma once

#include "cuda/strand/strand_store.cuh"

namespace convt2d::cuda::strand {

// sum += of a step, of which `a` and `b` are this lane's rows in shared memory.
template <class M, int ROW>
__device__ __forceinline__ void multiply(Sums<ROW>& sum, uint32_t a, uint32_t b) {
  constexpr Tile tile = kTiles[ROW];
  constexpr int kM = kWarpRows / 16, kN = tile.warp_positions / 8;
  uint32_t position[kN][2];
#pragma unroll
  for (int j = 0; j < kN; j += 2) {
    uint32_t four[4];
    ldmatrix_x4(four, b + j * 8 * pitch(tile));
    position[j][0] = four[0], position[j][1] = four[1];
    position[j + 1][0] = four[2], position[j + 1][1] = four[3];
  }
  if constexpr (M::kSplit) {
    uint32_t low[kN][2];
#pragma unroll
    for (int j = 0; j < kN; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        M::split(position[j][half], position[j][half], low[j][half]);
#pragma unroll
    for (int i = 0; i < kM; ++i) {
      uint32_t row[4], rest[4];
      ldmatrix_x4(row, a + i * 16 * pitch(tile));
#pragma unroll
      for (int w = 0; w < 4; ++w) M::split(row[w], row[w], rest[w]);
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        M::mma(sum[i][j], rest, position[j][0], position[j][1]);
        M::mma(sum[i][j], row, low[j][0], low[j][1]);
        M::mma(sum[i][j], row, position[j][0], position[j][1]);
      }
    }
  } else {
#pragma unroll
    for (int j = 0; j < kN; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half) position[j][half] = M::round(position[j][half]);
#pragma unroll
    for (int i = 0; i < kM; ++i) {
      uint32_t row[4];
      ldmatrix_x4(row, a + i * 16 * pitch(tile));
#pragma unroll
      for (int w = 0; w < 4; ++w) row[w] = M::round(row[w]);
#pragma unroll
      for (int j = 0; j < kN; ++j) M::mma(sum[i][j], row, position[j][0], position[j][1]);
    }
  }
}

// `few` to `all`, and from zero again.
template <int ROW>
__device__ __forceinline__ void fold(Sums<ROW>& few, Sums<ROW>& all) {
#pragma unroll
  for (int i = 0; i < kWarpRows / 16; ++i)
#pragma unroll
    for (int j = 0; j < kTiles[ROW].warp_positions / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        all[i][j][e] += few[i][j][e];
        few[i][j][e] = 0;
      }
}

template <class M, int ROW>
__global__ void __launch_bounds__(kThreads, side_by_side(kTiles[ROW]))
    convt2d_strand_kernel(const __grid_constant__ Params p) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  return;  // no clusters: declined by the planner
#else
  using T = typename M::Element;
  constexpr Tile tile = kTiles[ROW];
  constexpr int kStage = stage_bytes(tile), kAhead = tile.stages - 1, kSteps = steps(tile);
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32_t places = shared_address(smem), stages = places + tile.positions * kPlaceBytes;
  const Scope at = scope_of(p, tile);
  build_places<ROW>(p, at, places);
  Weights<T, ROW> weights(p, at);

  const int lane = threadIdx.x % 32, first_step = team_of_warp<ROW>() * kSteps * kStep;
  const uint32_t a =
      stages + (warp_row<ROW>() + lane % 16) * pitch(tile) + lane / 16 * 16 + first_step;
  const uint32_t b = stages +
                     (tile.rows + warp_position<ROW>() + lane / 16 * 8 + lane % 8) * pitch(tile) +
                     lane / 8 % 2 * 16 + first_step;
  Sums<ROW> sum = {}, few = {};
  int here = 0, next = 0;  // stages, as offsets
  // The first turns only ask: so the code that does stands here once.
  for (int chunk = at.begin - kAhead; chunk < at.end; ++chunk) {
    copy_async_wait_for<kAhead - 1>();
    __syncthreads();  // all have what they asked for, and have multiplied the chunk before
    if (chunk + kAhead < at.end) bring<T, ROW>(p, places, weights, chunk + kAhead, stages + next);
    copy_async_commit();
    next = next + kStage == tile.stages * kStage ? 0 : next + kStage;
    if (chunk < at.begin) continue;
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      multiply<M, ROW>(M::kSplit ? few : sum, a + here + step * kStep, b + here + step * kStep);
    here = here + kStage == tile.stages * kStage ? 0 : here + kStage;
    if constexpr (M::kSplit) {
      constexpr int kFold = MmaF32x3::kFoldSteps / kSteps;  // chunks
      static_assert(kFold * kSteps == MmaF32x3::kFoldSteps);
      if ((chunk - at.begin) % kFold == kFold - 1) fold<ROW>(few, sum);
    }
  }
  if constexpr (M::kSplit) fold<ROW>(few, sum);
  copy_async_wait_for<0>();
  __syncthreads();
  add_and_store<M, ROW>(p, at, sum, stages);
#endif
}

}  // namespace convt2d::cuda::strand
