// What a block works on.
#pragma once

#include "cuda/device/uniform.cuh"
#include "cuda/loom/loom_config.h"
#include "cuda/walker_scope.cuh"

namespace convt2d::cuda::loom {

using Scope = WalkerScope;

// The row and the column of the source that a patch, or its first part, needs first.
__device__ __forceinline__ int first_row(const GatherParams& p, const Scope& at,
                                         TileOrigin origin) {
  return origin.h * p.h.source_step + p.h.group[at.group_h].offset_low;
}
__device__ __forceinline__ int first_column(const GatherParams& p, TileOrigin origin) {
  return origin.w * p.w.source_step + p.w.group[0].offset_low;
}

__device__ __forceinline__ int blocks_of_round(const GatherParams& p) {
  int walkers = 0;
#pragma unroll
  for (int g = 0; g < kMostGroups; ++g) walkers += p.walkers[g];
  return p.groups * p.column_tiles * walkers;
}

// The tiles of a block: every so many-th of a round's. In shared memory, for the same reason as the scope.
__device__ __forceinline__ void make_walk_known(const GatherParams& p, const Scope& at, int round,
                                                uint32_t to) {
  const int tiles = p.tiles_n * p.tiles_h * p.tiles_w, each = tiles / p.rounds,
            more = tiles - each * p.rounds, begin = round * each + min(round, more);
  store_shared_4(to, begin + at.walker);
  store_shared_4(to + 4, begin + each + (round < more));
  store_shared_4(to + 8, p.walkers[at.group_h]);
}
struct Walk {
  uint32_t shared;
  __device__ __forceinline__ int first() const { return int(load_shared_4(shared + kWalk)); }
  __device__ __forceinline__ int end() const { return int(load_shared_4(shared + kWalk + 4)); }
  __device__ __forceinline__ int step() const { return int(load_shared_4(shared + kWalk + 8)); }
};
// The same as all lanes of a warp have it.
struct TileWalk {
  int first, end, step;
};
__device__ __forceinline__ TileWalk uniform_walk(uint32_t shared) {
  const Walk walk{shared};
  return {uniform(walk.first()), uniform(walk.end()), uniform(walk.step())};
}
template <class Visit>
__device__ __forceinline__ void for_tiles(const GatherParams& p, uint32_t shared, Visit&& visit) {
  const Walk walk{shared};
  for (int tile = walk.first(); tile < walk.end(); tile += walk.step()) visit(tile_origin(p, tile));
}

// Whether both groups have the same positions of a tile, and different channels or phases, or tiles.
__device__ __forceinline__ bool same_positions(const GatherParams& p) {
  return p.tile_channels > kRows || (p.row_phases > 1 && !p.halved) || p.own_tiles;
}
// Which of the phases of rows of the block is this warp's.
__device__ __forceinline__ int row_phase(const GatherParams& p) {
  return p.row_phases == 1 ? 0 : threadIdx.x / (p.halved ? 64 : 128) % 2;
}

// Steps of a phase of rows, of all its parts.
__device__ __forceinline__ int steps_of_row(const GatherParams& p, int row) {
  return p.first_step[(row + 1) * p.parts] - p.first_step[row * p.parts];
}

// Where a pixel of a patch is in a half, in units of 16 bytes.
__device__ __forceinline__ int unit_of_pixel(const GatherParams& p, int n, int y, int x) {
  const int qh = y / p.steps_h, qw = x / p.steps_w,
            plane = (y - qh * p.steps_h) * p.steps_w + x - qw * p.steps_w;
  return plane * p.plane_units + (n * p.plane_h + qh) * p.plane_w + qw;
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
