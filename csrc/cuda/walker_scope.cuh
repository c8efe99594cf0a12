// What a block works on, and the tiles it walks, where groups of phases have numbers of blocks of their own (walkers.h).
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/gather_device.cuh"

namespace convt2d::cuda {

// Which combination of (group, column tile, phases), and which of its walkers. Those of the same positions are neighbours, or
// those of the same group and column tile (`walkers_first`; then there is one group of phases).
struct WalkerScope {
  int group_h, column_tile, group, walker;
};
template <class Params>
__device__ __forceinline__ WalkerScope walker_scope_of(const Params& p, bool walkers_first,
                                                       int block) {
  WalkerScope at;
  const int digit = walkers_first ? p.walkers[0] : p.column_tiles,
            next = walkers_first ? p.column_tiles : p.groups;
  const int rest = block / digit, low = block - rest * digit, high = rest / next,
            middle = rest - high * next;
  at.column_tile = walkers_first ? middle : low;
  at.group = walkers_first ? high : middle;
  at.walker = walkers_first ? low : high;
  for (at.group_h = 0; at.walker >= p.walkers[at.group_h]; ++at.group_h)
    at.walker -= p.walkers[at.group_h];
  return at;
}

template <class Params>
__device__ __forceinline__ WalkerScope walker_scope_of(const Params& p) {
  return walker_scope_of(p, false, blockIdx.x);
}

// In shared memory, for those whose sums leave them few registers.
__device__ __forceinline__ void make_known(const WalkerScope& at, uint32_t to) {
  const int word[] = {at.group_h, at.column_tile, at.group, at.walker};
#pragma unroll
  for (int i = 0; i < 4; ++i) store_shared_4(to + i * 4, word[i]);
}
__device__ __forceinline__ WalkerScope known_scope(uint32_t from) {
  uint32_t word[4];
  load_shared_16(from, word);
  return {int(word[0]), int(word[1]), int(word[2]), int(word[3])};
}

// Calls `visit` with the first position of each tile of a block.
template <class Params, class Visit>
__device__ __forceinline__ void for_tiles(const Params& p, const WalkerScope& at, Visit&& visit) {
  const int tiles = p.tiles_n * p.tiles_h * p.tiles_w;
  for (int tile = at.walker; tile < tiles; tile += p.walkers[at.group_h])
    visit(tile_origin(p, tile));
}

}  // namespace convt2d::cuda
