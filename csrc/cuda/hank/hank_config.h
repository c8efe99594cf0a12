// hank: grad_weight, channels last, of layers of one channel in and one out a group, whose kernels are up to two strides. What one
// block computes, and the numbers it is told.
//
//   dW[c, kh, kw] = sum over images, q, i of dY[row q * stride - near_pad + f, column i * stride - near_pad + f', c] * x[q - j, i - j', c]
//
// for taps kh = f + j * stride, kw = f' + j' * stride: a phase (f, f') of dY meets up to two rows and two columns of x.
//
// Eight such sums are the diagonal of a matrix product: on mma.sync, rows M = 8 channels of two phases, columns N = the same 8
// channels of x, reduction K = pixels (q, i). An eighth of the products is wanted, which costs less than the multiply-add units do:
// dY is moved once, and fetched once for all four of x.
//
//   dY  [phase][q][i][line of 128 B of channels, swizzled]     x  [q - j][i - j'][line]
//
// A box of the copy engine is a phase, stepping over the others. Rows of a stage follow each other without gaps, and x's are as long:
// then pixel, phase and tap are summands of an address, the same for all chunks of K. What comes before a row of x, or behind the
// one before, is a column of zeros beside the plane. Rows that are wider than a box are strips of one row, of which x has the
// columns before.
//
// Behind the last pixel of a stage are lines of zeros. What was multiplied with a zero from there, or from beside a plane, and came
// out NaN is summed again.
//
// A warp has 8 channels and all phases of a block; where a line has fewer eights than there are warps, some share the chunks of K.
// Blocks differ in channels and phase rows, and those that share these write partial sums, [kh][kw][c].
#pragma once

#include <cuda.h>

#include <cstdint>

#include "core/types.h"
#include "cuda/device/index.cuh"

namespace convt2d::cuda::hank {

// Of a block, and so sums of a thread: two phases' are 16.
struct Tile {
  int phases;
};
constexpr Tile kTiles[] = {{4}, {8}};
constexpr int kTileCount = sizeof(kTiles) / sizeof(kTiles[0]);

constexpr int kWarps = 8;  // that multiply; another one asks the copy engine
constexpr int kConsumers = kWarps * 32, kThreads = kConsumers + 32;
constexpr int kWindow = 2;  // rows and columns of x that a phase meets
constexpr int kEight = 8;   // channels of a warp
constexpr int kLine = 128, kChunkBytes = 32;
constexpr int kMostStages = 8;
constexpr int kStagesAt = 1024;  // behind barriers; in the end, where these were, sums

// Of numbers of so many bytes: channels of a block, pixels of a chunk of K, warps that have the same channels.
CONVT2D_HOST_DEVICE constexpr int line_channels(int bytes) { return kLine / bytes; }
CONVT2D_HOST_DEVICE constexpr int chunk_pixels(int bytes) { return kChunkBytes / bytes; }
CONVT2D_HOST_DEVICE constexpr int sharers(int bytes) {
  return kWarps * kEight / line_channels(bytes);
}
// Of a warp: two phases at a time, by what they meet, and of all warps of a block.
CONVT2D_HOST_DEVICE constexpr int sum_lines(Tile tile) { return tile.phases * kWindow * kWindow; }
constexpr int kSumLine = kWarps * kEight * 4;  // bytes

struct Params {
  const void *x, *y;
  void* weight;
  float* partials;
  int32_t piece_floats;
  int32_t stride[4];                     // of dW or of a piece: c, 1, kh, kw
  int32_t batch, groups, rows, columns;  // the latter two: 1
  int32_t x_h, x_w, y_h, y_w, stride_h, stride_w, pad_h, pad_w, kernel_h, kernel_w;
  int32_t window_h, window_w;              // rows and columns of x that a phase meets
  int32_t phase_rows, phase_columns;       // of a block
  int32_t band, pixels, x_pixels;          // rows q of a stage, pixels of one, of one of x
  int32_t chunks;                          // of K
  int32_t plane_bytes, x_at, stage_bytes;  // of a phase; in a stage
  int32_t stages;
  int32_t bands, strips;  // of an image, of a row
  int32_t line_blocks, phase_blocks, steps, split;
  FastDivide by_bands, by_strips;
};

struct Maps {
  CUtensorMap x, y;
};

CONVT2D_HOST_DEVICE int phases(const Params& p) { return p.phase_rows * p.phase_columns; }
// Pixels that come with a step, of a phase and of x.
CONVT2D_HOST_DEVICE int step_pixels(const Params& p) { return p.band * p.pixels; }
CONVT2D_HOST_DEVICE int step_x_pixels(const Params& p) {
  return (p.band + p.window_h - 1) * p.x_pixels;
}

}  // namespace convt2d::cuda::hank
