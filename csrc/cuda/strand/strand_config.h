// strand: grad_input whose outputs are few and whose sums are long, as a product of two matrices that both lie along
// its reduction.
//
//   dX[ci, pixel] = sum over (co, kh, kw) of W[ci, (co, kh, kw)] * dY[pixel, (co, kh, kw)]
//
// Rows M = input channels of a group, columns = pixels of all images ("positions"), reduction K = what a row of weights
// has, in the order of their memory: (co, kh, kw) in NCHW, (kh, kw, co) channels last. Along K a row of weights is one
// piece of memory; of dY a position reads a run of neighbouring numbers for each of K's outer indices: a kernel row in
// NCHW, a kernel row of all channels channels last, or a tap's channels, where there are groups or taps lie apart. Both
// are copied as they lie (cp.async), 16, 8 or 4 bytes at once, each position for itself, and what lies beside dY or
// beyond the end of K becomes zeros, in both.
//
//   weights   [row of the tile][a chunk of K]
//   dY        [position of the tile][a chunk of K]
//
// Of a chunk's steps of 32 bytes, teams of warps have some each; of all chunks, the blocks of a cluster (ranks). Their
// sums meet in shared memory, team by team and rank by rank.
#pragma once

#include <cstdint>

#include "core/types.h"
#include "cuda/device/index.cuh"

namespace convt2d::cuda::strand {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kWarpRows = 32;
constexpr int kStep = 32;  // bytes of K

struct Tile {
  int rows, positions;
  int warp_positions;  // of them a warp has, and kWarpRows rows
  int chunk;           // bytes of K
  int stages;          // chunks under way
};
constexpr Tile kTiles[] = {
    {32, 32, 32, 256, 6},
    {64, 32, 32, 256, 4},
    {128, 64, 32, 128, 4},
    {64, 96, 48, 128, 4},
};
constexpr int kTileCount = sizeof(kTiles) / sizeof(kTiles[0]);
// The first of them: for strict fp32, whose sums of a few steps take registers beside those of all.
constexpr int kStrictTiles = kTileCount - 1;

CONVT2D_HOST_DEVICE constexpr int row_warps(Tile tile) { return tile.rows / kWarpRows; }
CONVT2D_HOST_DEVICE constexpr int position_warps(Tile tile) {
  return tile.positions / tile.warp_positions;
}
CONVT2D_HOST_DEVICE constexpr int teams(Tile tile) {
  return kWarps / (row_warps(tile) * position_warps(tile));
}
// Of a chunk and team.
CONVT2D_HOST_DEVICE constexpr int steps(Tile tile) { return tile.chunk / kStep / teams(tile); }
// Sums of a thread.
CONVT2D_HOST_DEVICE constexpr int sums(Tile tile) { return kWarpRows * tile.warp_positions / 32; }
// Blocks of a multiprocessor.
CONVT2D_HOST_DEVICE constexpr int side_by_side(Tile tile) { return sums(tile) > 48 ? 1 : 2; }

// Bytes from one row, or position, to the next, so that neighbours lie in different banks.
CONVT2D_HOST_DEVICE constexpr int pitch(Tile tile) { return tile.chunk + 16; }
CONVT2D_HOST_DEVICE constexpr int stage_bytes(Tile tile) {
  return (tile.rows + tile.positions) * pitch(tile);
}
constexpr int kTogether = 4;  // sums of a line of neighbours in dX that one thread adds
constexpr int kPlaceBytes = 16;
CONVT2D_HOST_DEVICE constexpr int shared_bytes(Tile tile) {
  return tile.positions * kPlaceBytes + tile.stages * stage_bytes(tile);
}

struct Params {
  const void *weight, *source;
  void* destination;
  int32_t groups, rows, reduce;  // of a group: input channels, K
  int32_t positions;             // of all images
  int32_t row_tiles, position_tiles;
  int32_t chunks, ranks;
  int32_t weight_piece, source_piece;  // bytes of a copy
  int32_t along;                       // log2 of neighbouring threads that copy neighbours along K
  // K = (outer, middle, number of a run). What lies from one to the next in dY; and rows of dY, and columns, in units of
  // `limit`.
  int32_t outer, middle, run;
  int32_t outer_step, middle_step;
  int32_t outer_row, middle_row, middle_column, run_column;
  // dY: of an image, a group, a row, a pixel; rows, and a row's columns in units that tell what exists.
  int32_t y_image, y_group, y_row, y_pixel, y_h, limit, unit;
  int32_t stride_h, stride_w, pad_h, pad_w;
  // dX: numbers of an image, of the step from a channel and from a pixel to the next.
  int32_t x_image, x_channel, x_pixel;
  int32_t vectors;                                   // four neighbours of dX are stored at once
  FastDivide by_run, by_middle, by_plane, by_width;  // the latter of x
};

}  // namespace convt2d::cuda::strand
