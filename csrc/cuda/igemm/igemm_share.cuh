// Where several warps or blocks summed shares of one tile's reduction: their sums, added in a fixed order.
//
// First the teams of a block: all but the first put their sums into shared memory, which the patches and weights
// have left, and the first adds them, team by team. Then the ranks of the cluster: every first team puts its
// sums there, and of each warp's columns every rank adds some, rank by rank, and stores them. Who adds has no
// effect on the result.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/cluster.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/igemm/igemm_config.h"

namespace convt2d::cuda::igemm {

template <int COLUMNS, int SLOTS>
using Sums = float[SLOTS][COLUMNS / 8][kWarpPositions / 16][4];

// Of the tile's sums, what this warp stores: eight-column tiles [n, n + TILES) for which stores(n / TILES).
struct Share {
  int ranks,
      first;  // every `ranks`-th group, counting over the warps, of which this is the warp's first

  __device__ __forceinline__ bool stores(int group) const { return (group + first) % ranks == 0; }
};
struct Everything {
  __device__ __forceinline__ bool stores(int) const { return true; }
};

template <int TILES, int COLUMNS>
__device__ __forceinline__ Share share_of(const GatherParams& p) {
  const int warp = threadIdx.x >> 5;
  return {p.ranks, warp * (COLUMNS / 8 / TILES) + p.ranks - static_cast<int>(blockIdx.y)};
}

// The place of a thread's four sums in its team's copy of the tile; a warp's are 512 bytes in a row.
template <int COLUMNS, int SLOTS>
__device__ __forceinline__ uint32_t sums_place(int warp, int s, int n, int m) {
  const int lane = threadIdx.x & 31, tile = (s * (COLUMNS / 8) + n) * (kWarpPositions / 16) + m;
  constexpr int kTiles = SLOTS * (COLUMNS / 8) * (kWarpPositions / 16);
  return ((warp * kTiles + tile) * 32 + lane) * 16;
}

template <int COLUMNS, int SLOTS>
__device__ __forceinline__ void put_sums(const Sums<COLUMNS, SLOTS>& sum, uint32_t shared,
                                         int warp) {
#pragma unroll
  for (int s = 0; s < SLOTS; ++s)
#pragma unroll
    for (int n = 0; n < COLUMNS / 8; ++n)
#pragma unroll
      for (int m = 0; m < kWarpPositions / 16; ++m) {
        const float (&from)[4] = sum[s][n][m];
        store_shared_16(shared + sums_place<COLUMNS, SLOTS>(warp, s, n, m),
                        {__float_as_uint(from[0]), __float_as_uint(from[1]),
                         __float_as_uint(from[2]), __float_as_uint(from[3])});
      }
}

// What the teams of this block summed; the first team's warps have it then.
template <int COLUMNS, int SLOTS>
__device__ __forceinline__ void add_teams(const GatherParams& p, Sums<COLUMNS, SLOTS>& sum,
                                          uint32_t shared) {
  const int warp = threadIdx.x >> 5;
  if (warp >= position_warps(p)) put_sums<COLUMNS, SLOTS>(sum, shared, warp);
  __syncthreads();
  if (warp >= position_warps(p)) return;
  for (int from = warp + position_warps(p); from < p.warps; from += position_warps(p)) {
#pragma unroll
    for (int s = 0; s < SLOTS; ++s)
#pragma unroll
      for (int n = 0; n < COLUMNS / 8; ++n)
#pragma unroll
        for (int m = 0; m < kWarpPositions / 16; ++m) {
          uint32_t word[4];
          load_shared_16(shared + sums_place<COLUMNS, SLOTS>(from, s, n, m), word);
#pragma unroll
          for (int i = 0; i < 4; ++i) sum[s][n][m][i] += __uint_as_float(word[i]);
        }
  }
}

// What the ranks of this cluster summed, as far as this warp stores it.
template <int TILES, int COLUMNS, int SLOTS>
__device__ __forceinline__ void add_ranks(const GatherParams& p, Sums<COLUMNS, SLOTS>& sum,
                                          uint32_t shared, const Share& share) {
  const int warp = threadIdx.x >> 5;
  if (warp < position_warps(p)) put_sums<COLUMNS, SLOTS>(sum, shared, warp);
  cluster_arrive();
  cluster_wait();
  if (warp < position_warps(p)) {
#pragma unroll
    for (int first = 0; first < COLUMNS / 8; first += TILES) {
      if (!share.stores(first / TILES)) continue;
      for (int rank = 0; rank < p.ranks; ++rank) {
        const uint32_t there = place_of_rank(shared, rank);
#pragma unroll
        for (int s = 0; s < SLOTS; ++s)
#pragma unroll
          for (int n = first; n < first + TILES; ++n)
#pragma unroll
            for (int m = 0; m < kWarpPositions / 16; ++m) {
              const float4 value = load_of_rank(there + sums_place<COLUMNS, SLOTS>(warp, s, n, m));
              float (&to)[4] = sum[s][n][m];
              to[0] = rank ? to[0] + value.x : value.x;
              to[1] = rank ? to[1] + value.y : value.y;
              to[2] = rank ? to[2] + value.z : value.z;
              to[3] = rank ? to[3] + value.w : value.w;
            }
      }
    }
  }
  cluster_arrive();  // this block has read; it leaves when all have (cluster_wait)
}

}  // namespace convt2d::cuda::igemm
