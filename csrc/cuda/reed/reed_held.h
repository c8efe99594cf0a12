// reed's held tiles: a block keeps its positions' pixels, all channels of them, in shared memory and takes rows after rows of
// the same GEMM (reed_config.h). Here positions are the rows of an instruction and phases its columns: a thread's sums are
// neighbours in y, and go there from registers.
//
//   x    [slot][channel]   once, turned and rounded; a slot is a pixel that some position reads at some j, or one beside x
//   w    [K][row]          as they lie, a chunk of channels of one j, or half of it of two, a stage
//
// Slots are in the order of positions: each image has as many more rows and columns as there are j to step back, so that j is
// the same number of slots for all positions.
#pragma once

#include "cuda/reed/reed_config.h"

namespace convt2d::cuda::reed {

// Plan.row of a held tile, that of kTiles whose rows and threads it has.
constexpr int kHeldRow = kTileCount, kHeldTile = 1;
constexpr int kHeldRows = kTiles[kHeldTile].rows, kHeldThreads = threads_of(kTiles[kHeldTile]);
// Warps along positions, tiles of 8 rows of a warp; tiles of 16 positions of a warp, most and least.
constexpr int kHeldAcross = 2, kHeldColumns = 4;
constexpr int kMostHeld = 4, kLeastHeld = 3;
static_assert(kHeldThreads / 32 / kHeldAcross * kHeldColumns * 8 == kHeldRows);

struct Held {
  Params base;
  int32_t tiles, parts;  // of 16 positions; blocks that share the rows of the same positions
  int32_t each, more;    // tiles of rows of every part, and parts that have one more
  int32_t slots, ahead;  // slots in front of the first position's
  int32_t units, pitch;  // 16 bytes of channels of a slot; bytes from slot to slot
  int32_t images, grid_h, grid_w;  // rows of an image's slots, slots of a row
  int32_t together;  // broad tiles: whether two neighbours of y of two positions are four of them
  int32_t turned;    // runs of 16 bytes of a row of x, which come whole and are turned; or 0
  FastDivide by_grid, by_grid_w, by_units, by_pairs;
};

CONVT2D_HOST_DEVICE constexpr int held_positions(int warp_tiles) {
  return warp_tiles * kHeldAcross * 16;
}
// Tiles of 16 positions of a warp.
CONVT2D_HOST_DEVICE constexpr int warp_tiles(int tiles) {
  return tiles <= kLeastHeld * kHeldAcross ? kLeastHeld : kMostHeld;
}
// In front of the stages: 16 bytes of each position, a bias of each row of two tiles, where each slot is in x.
CONVT2D_HOST_DEVICE constexpr int held_table_bytes(int warp_tiles, int slots) {
  return held_positions(warp_tiles) * 16 + 2 * kHeldRows * 4 + (slots + 31) / 32 * 32 * 4;
}
CONVT2D_HOST_DEVICE constexpr int held_stage_bytes(int element_bytes) {
  return w_bytes(kTiles[kHeldTile], element_bytes);
}

// Those of wgmma: Plan.row, warpgroups, columns of a tile.
constexpr int kWideRow = kHeldRow + 1, kWideGroups = 2;
constexpr int kWideColumns = 128;
CONVT2D_HOST_DEVICE constexpr int wide_slots(int slots) { return (slots + 7) / 8 * 8; }
CONVT2D_HOST_DEVICE constexpr int wide_table_bytes(int columns, int slots) {
  return columns * 16 + kWideGroups * 2 * kHeldRows * 4 + (slots + 31) / 32 * 32 * 4;
}

}  // namespace convt2d::cuda::reed
