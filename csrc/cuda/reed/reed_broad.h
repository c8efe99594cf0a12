// reed's broad tiles: held ones of 16 bits on Hopper's wgmma, of kernels that are their stride, so that a slot is a position.
// Positions are an instruction's rows and phases its columns, as in held tiles; both operands lie in shared memory:
//
//   x    [64 channels][position][128 bytes]    along K, swizzled; once, turned by threads
//   w    [64 rows][64 channels][128 bytes]     as they lie, by the copy engine, two such blocks a stage
//
// Warpgroups have 64 positions each and go their own ways: one stores a tile of rows while others multiply.
#pragma once

#include <cuda.h>

#include "cuda/reed/reed_lapped.h"

namespace convt2d::cuda::reed {

constexpr int kBroadRow = kLappedRow + 1;  // Plan.row
constexpr int kBroadPositions = 64;        // of a warpgroup
constexpr int kBroadRows = kHeldRows, kBroadBlock = 64, kBroadChunk = 64;
constexpr int kBroadStage = kBroadRows * kBroadChunk * 2;
constexpr int kMostBroadStages = 8;

// Warpgroups of a block, one, two or four, of which a multiprocessor has four as far as there is room; by its threads a
// kernel has so many registers that two blocks of two fit.
constexpr int kMostBroadGroups = 4, kMostBroadThreads = 2 * (2 * 128 + 32);
CONVT2D_HOST_DEVICE constexpr int broad_threads(int groups) { return groups * 128 + 32; }
// Behind pixels and stages: barriers, 16 bytes of each position, a bias of each row of two tiles of each warpgroup, where
// each slot is in x.
CONVT2D_HOST_DEVICE constexpr int broad_table_bytes(int groups) {
  return kMostBroadStages * 16 + groups * (kBroadPositions * 20 + 2 * kBroadRows * 4);
}

}  // namespace convt2d::cuda::reed
