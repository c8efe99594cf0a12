// comb: grad_weight of NCHW tensors whose kernel rows, steps along rows and padding are multiples of four; and of
// channels-last ones without groups whose are, in numbers of dY: there what a pixel's kernel row meets, all output channels
// of it, is one run of memory, so it is a longer kernel row of one channel (as_one_channel()).
//
//   dW[ci, (co, kh, kw)] = sum over pixels of x[ci, pixel] * dY[co, row of pixel and kh, column of pixel and kw]
//
// As a GEMM: rows M = input channels, columns N = (co, kh, kw), in the order of dW's memory, reduction K = the pixels
// of all images, whose planes lie one behind the other, so short planes fill a chunk of K as well as long ones. Of a
// pixel, the taps of a kernel row are neighbours in dY: four of them are one copy to shared memory (cp.async), wherever
// the stride puts the next pixel. What lies outside of dY, or beyond the last pixel, becomes zeros.
//
//   x    [input channel][32 pixels]
//   dY   [pixel][column]
//
// Both as mma.sync wants them: x by ldmatrix, dY of 16 bits by ldmatrix.trans; of words a thread loads four columns at
// once, which are columns of four instructions.
//
// Blocks that share columns and channels of dW, but not pixels, write partial sums in the order of dW.
#pragma once

#include <cstdint>

#include "core/types.h"
#include "cuda/device/index.cuh"

namespace convt2d::cuda::comb {

// Input channels and columns of a block, and among how many warps the channels are shared out.
struct Tile {
  int rows, columns, warps_m;
};
constexpr Tile kTiles[] = {{32, 256, 1}, {64, 256, 1}, {128, 128, 2}, {128, 256, 2}};
constexpr int kTileCount = sizeof(kTiles) / sizeof(kTiles[0]);
// The first of them: for words, two chunks of which every GPU has room for; for strict fp32, whose sums leave registers to
// those of a chunk.
constexpr int kWordTiles = 3, kStrictTiles = 2;
CONVT2D_HOST_DEVICE constexpr int tile_count(int element_bytes, bool strict) {
  return strict ? kStrictTiles : element_bytes == 4 ? kWordTiles : kTileCount;
}

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kChunk = 32;    // pixels
constexpr int kTogether = 4;  // columns that are one copy
constexpr int kMostStages = 4;

// Tiles of 16 channels and of 8 columns of a warp; registers of sums of a thread.
CONVT2D_HOST_DEVICE constexpr int row_tiles(Tile tile) { return tile.rows / tile.warps_m / 16; }
CONVT2D_HOST_DEVICE constexpr int column_tiles(Tile tile) {
  return tile.columns / (kWarps / tile.warps_m) / 8;
}
CONVT2D_HOST_DEVICE constexpr int sums(Tile tile) { return tile.rows * tile.columns / kThreads; }

// Bytes from one channel of x, or pixel of dY, to the next, so that neighbours lie in different banks.
CONVT2D_HOST_DEVICE constexpr int x_pitch(int element_bytes) { return kChunk * element_bytes + 16; }
CONVT2D_HOST_DEVICE constexpr int y_pitch(Tile tile, int element_bytes) {
  return tile.columns * element_bytes + element_bytes * 8;
}
CONVT2D_HOST_DEVICE constexpr int x_bytes(Tile tile, int element_bytes) {
  return tile.rows * x_pitch(element_bytes);
}
CONVT2D_HOST_DEVICE constexpr int stage_bytes(Tile tile, int element_bytes) {
  return x_bytes(tile, element_bytes) + kChunk * y_pitch(tile, element_bytes);
}

struct Params {
  const void *x, *y;
  void* weight;
  float* partials;  // else [pieces][ci][co][kh][kw]
  int32_t piece_floats;
  int32_t groups, rows, columns;  // of a group: input channels, (co, kh, kw)
  int32_t pixels;                 // of all images
  int32_t x_plane, x_image;       // numbers
  int32_t x_channel, x_pixel;  // from one to the next, or 0 where pixels of a plane are neighbours
  int32_t y_h, y_w, y_plane, y_image;
  int32_t stride_h, stride_w, pad_h, pad_w, dilation_h;
  int32_t kernel_h, kernel_w;
  int32_t x_piece;  // bytes of x at once, 16, 8, 4 or 2
  int32_t row_blocks, column_blocks;
  int32_t chunks, split, stages;
  FastDivide by_plane, by_width;  // of x
};

}  // namespace convt2d::cuda::comb
