// What a block works on, and the tiles it walks.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/gather_device.cuh"
#include "cuda/loom/loom_config.h"

namespace convt2d::cuda::loom {

// Which combination of (group, column tile, phases), and which of its walkers. Those of the same positions are neighbours.
struct Scope {
  int group_h, column_tile, group, walker;
};
__device__ __forceinline__ Scope scope_of(const GatherParams& p) {
  Scope at;
  int rest = blockIdx.x;
  at.column_tile = rest % p.column_tiles;
  rest /= p.column_tiles;
  at.group = rest % p.groups;
  at.walker = rest / p.groups;
  for (at.group_h = 0; at.walker >= p.walkers[at.group_h]; ++at.group_h)
    at.walker -= p.walkers[at.group_h];
  return at;
}

// In shared memory, for those whose sums leave them few registers.
__device__ __forceinline__ void make_known(const Scope& at, uint32_t shared) {
  const int word[] = {at.group_h, at.column_tile, at.group, at.walker};
#pragma unroll
  for (int i = 0; i < 4; ++i) store_shared_4(shared + kScope + i * 4, word[i]);
}
__device__ __forceinline__ Scope known_scope(uint32_t shared) {
  uint32_t word[4];
  load_shared_16(shared + kScope, word);
  return {int(word[0]), int(word[1]), int(word[2]), int(word[3])};
}

// Calls `visit` with the first position of each tile of a block.
template <class Visit>
__device__ __forceinline__ void for_tiles(const GatherParams& p, const Scope& at, Visit&& visit) {
  const int tiles = p.tiles_n * p.tiles_h * p.tiles_w;
  for (int tile = at.walker; tile < tiles; tile += p.walkers[at.group_h])
    visit(tile_origin(p, tile));
}

// The row and the column of the source that a patch needs first.
__device__ __forceinline__ int first_row(const GatherParams& p, const Scope& at,
                                         TileOrigin origin) {
  return origin.h * p.h.source_step + p.h.group[at.group_h].offset_low;
}
__device__ __forceinline__ int first_column(const GatherParams& p, TileOrigin origin) {
  return origin.w * p.w.source_step + p.w.group[0].offset_low;
}

// Whether both groups have the same positions, and different channels.
__device__ __forceinline__ bool same_positions(const GatherParams& p) {
  return p.tile_channels > kRows;
}

// Of a tile, packed: image, row, column; -1: none.
template <int TILE>
__device__ __forceinline__ void build_positions(const GatherParams& p, uint32_t shared) {
  constexpr int kCount = positions(kTiles[TILE]);
  for (int i = threadIdx.x; i < kGroups * kCount; i += kThreads) {
    const int group = same_positions(p) ? 0 : i / kCount, at = i % kCount;
    int row, w;
    if (p.layout == kRuns) {
      const int pixel = group * kCount + at;
      row = pixel / p.plane_w;
      w = pixel - row * p.plane_w;
    } else {
      row = at / kEight + (p.layout == kStacked ? group * kCount / kEight : 0);
      w = at % kEight + (p.layout == kBeside ? group * kEight : 0);
    }
    const int n = row / p.plane_h, h = row - n * p.plane_h;
    const bool there = n < p.tile_n && h < p.tile_h && w < p.tile_w;
    store_shared_4(shared + kPositions + i * 4, there ? n << 20 | h << 10 | w : -1);
  }
}
__device__ __forceinline__ TileOrigin position_of(TileOrigin origin, int packed) {
  return {origin.n + (packed >> 20), origin.h + (packed >> 10 & 1023), origin.w + (packed & 1023)};
}

}  // namespace convt2d::cuda::loom
