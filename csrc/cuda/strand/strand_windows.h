// strand's windows: the same GEMM where kernels and steps along rows are so regular that the copy engine brings each number
// of dY once for all positions of a tile that read it (fcn32s: 64 x 64 kernels at stride 32, 2 x 2 positions).
//
// Where a kernel row is `across` segments of 32, 64 or 128 bytes, and steps, padding and dY's rows are whole numbers of
// them, and kernels and dY have whole steps of rows, so that a box has the rows that are a step apart: boxes cost more than
// what is in them. Channels last a step is one segment of each plane, and planes are a step's segments; in NCHW planes are channels. A
// unit of K is one remainder of the kernel row divided by the step, of some planes: of weights all kernel rows `down` that
// leave it, of dY the rows that a tile of positions meets there, each once.
//
//   dY        [row of the tile, down - 1 more][plane][segment that the tile meets][bytes]
//   weights   [down][plane][across][channel of x][bytes]
//
// So a position's operand is an address for each (down, across) of K, 32 bytes a step, of which teams of warps have some
// each; units are shared out to the blocks of a cluster. Rows of the product are positions, columns channels of x.
#pragma once

#include "cuda/strand/strand_config.h"

namespace convt2d::cuda::strand {

constexpr int kWindowColumns = 24, kWindowWarps = 16, kWindowConsumers = kWindowWarps * 32;
constexpr int kWindowThreads = kWindowConsumers + 32;  // one more warp asks the copy engine
// Positions of a block; rows of kTiles end where these begin.
constexpr int kWindowPositions[] = {64};
constexpr int kWindowTileCount = 1;
constexpr int kMostWindowRanks = 16;  // more than eight are for GPUs that are asked

// Sixteens of positions of a warp: strict fp32 has sums of a few steps beside those of all.
CONVT2D_HOST_DEVICE constexpr int window_sixteens(int positions, bool strict) {
  return strict ? 2 : positions / 16;
}
CONVT2D_HOST_DEVICE constexpr int window_teams(int positions, bool strict) {
  return kWindowWarps * 16 * window_sixteens(positions, strict) / positions;
}
CONVT2D_HOST_DEVICE constexpr int window_sum_bytes(int positions) {
  return positions * kWindowColumns * 4;
}

// What ranks send each other: a barrier, and a rank's share of everyone's sums.
CONVT2D_HOST_DEVICE constexpr int window_received_bytes(int positions) {
  return 16 + window_sum_bytes(positions) + kMostWindowRanks * 16;
}

struct WindowParams {
  Params base;  // of the same problem, for what is summed again
  int32_t tiles_w, tiles_h, column_tiles, images, ranks;
  int32_t width_bits;  // log2 of a tile's positions in a row
  int32_t x_h, x_w;
  int32_t segment;                   // bytes
  int32_t down, across, remainders;  // of a kernel; remainders of its rows divided by the step
  int32_t planes, units, steps;      // planes and steps of a unit
  int32_t segments, rows;            // of dY, of a plane of a unit
  int32_t hop, skipped;   // segments from a position to the next; of dY before its row: padding
  int32_t before, shift;  // padding: steps of rows, and the rows that it is less than those
  int32_t image_planes, image_steps;  // of dY from an image to the next: planes, or steps of rows
  int32_t row_bytes, weight_bytes, weights_at, asked_bytes;
  int32_t stages, stage_bytes, table_at, received_at, stages_at, shared_bytes;
  FastDivide by_remainders, by_share;  // the latter: a rank's fours of sums
};

}  // namespace convt2d::cuda::strand
