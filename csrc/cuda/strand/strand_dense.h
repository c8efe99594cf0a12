// strand's dense rows, of fp32 in NCHW: the same GEMM where the copy engine brings rows of dY as they lie, whatever positions share of
// them, and warps fetch their operands from there word by word (depthany_S_r0: kernels of 4 x 4 that are their stride).
//
//   dY        [image of the tile][output channel][row that the tile meets][columns that it meets]
//   weights   [128 bytes of K][channel of x][bytes]
//
// A unit of K is some output channels, of which weights lie one behind the other. A step of K, 32 bytes, is a part of a
// kernel row, or two or four kernel rows: words t and t + 4 of it are what a lane fetches. Rows of the product are
// positions, columns channels of x.
#pragma once

#include "cuda/strand/strand_config.h"

namespace convt2d::cuda::strand {

constexpr int kDenseWarps = 16, kDenseThreads = kDenseWarps * 32;
constexpr int kDenseWeights = 128;  // bytes of K side by side

struct DenseTile {
  int positions, columns;
  int sixteens, eights;  // of positions and channels: a warp's
};
constexpr DenseTile kDenseTiles[] = {{128, 48, 2, 6}};
constexpr DenseTile kDenseStrictTiles[] = {{128, 48, 2, 3}};
constexpr int kDenseTileCount = 1;

CONVT2D_HOST_DEVICE constexpr DenseTile dense_tile(int row, bool strict) {
  return strict ? kDenseStrictTiles[row] : kDenseTiles[row];
}
CONVT2D_HOST_DEVICE constexpr int dense_groups(DenseTile tile) {  // of warps of a team
  return tile.positions / 16 / tile.sixteens * (tile.columns / 8 / tile.eights);
}
CONVT2D_HOST_DEVICE constexpr int dense_teams(DenseTile tile) {
  return kDenseWarps / dense_groups(tile);
}
// From a position's sums to the next one's, so that eight lie in different banks.
CONVT2D_HOST_DEVICE constexpr int dense_sum_pitch(DenseTile tile) { return tile.columns + 8; }
CONVT2D_HOST_DEVICE constexpr int dense_sum_bytes(DenseTile tile) {
  return tile.positions * dense_sum_pitch(tile) * 4;
}

struct DenseParams {
  Params base;  // of the same problem, for what is summed again
  int32_t tiles_w, tiles_h, tiles_n, column_tiles, ranks;
  int32_t width_bits, height_bits;  // log2 of a tile's positions in a row, and of its rows
  int32_t x_h, x_w, images;
  int32_t planes, units, steps;  // output channels and steps of a unit
  int32_t kernel_h, kernel_row;  // rows; bytes of one
  int32_t row_pitch, plane_pitch, image_pitch, position_step;  // bytes
  int32_t early_numbers,
      early;  // what a box starts too early: numbers before the tile's first; bytes
  int32_t source_bytes, weights_at, weight_boxes;
  int32_t lane_row,
      half;  // from word t of a step to t + 2 less 8 bytes, where that is another row; from t to t + 4
  int32_t swapped;  // four positions lie in all banks: the others fetch their halves in turn
  int32_t stages, stage_bytes, table_at, stages_at, shared_bytes;
};

}  // namespace convt2d::cuda::strand
