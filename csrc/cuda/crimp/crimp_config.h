// crimp: forward of kernels of (2 s, 1) with stride (s, 1), s 2, 4 or 8, NCHW, rows of x that are whole 16 bytes of pixels.
//
// As pleat does, it multiplies operands as they lie in memory and adds the products up in registers:
//
//   products[(co, kh), pixel] = sum over ci of w[ci][(co, kh)] * x[ci][pixel]
//
// and row s i + kh of y, counted from before the padding, is products kh of row i of x and products kh + s of row i - 1. So a lane
// has taps kh and kh + s of a channel: then what the second one has become is what the first one goes on from, with the next
// row of x, and nothing is left to add up. Weights of a block stay, in an order for that.
//
// 16 bits: rows of an instruction are taps, a warp's 16 those of 8 / s output channels, which make eight rows of y of a row of x.
// Once their weights have come, each warp's are sorted, so that rows g and g + 8, which a lane has, are taps kh and kh + s.
//
//   w    [64 rows][channel in][128 B]     swizzled; a warpgroup's rows, of all chunks, which stay
//   x    [64 pixels][channel in][128 B]   likewise, once or twice: pixels of a strip that follow each other in a row of x
//   out  [8 rows of y][128 B]             of a warp, likewise; the last box of a strip is as wide as there are columns
//
// A block walks down strips, a row of x a tile, with the output channels of its warpgroups: all its items are of these. A strip may
// be cut into segments of rows; such a one starts a row of x earlier.
//
// Words (TF32): the tensor core wants rows of K, so it is the mirror image. Rows of an instruction are 64 pixels, which lanes fetch
// from x as it lies, columns are (co, kh mod s, kh / s), which makes of a lane's two neighbours taps kh and kh + s.
//
//   w    [four channels in][column][16 B]   written once by those who multiply
//   x    [32 pixels][channel in][128 B]     swizzled, twice a warpgroup
//   out  [row of y][128 B]                  likewise, of two warps: rows of all channels of the block
//
// Here strips have 32 columns, those of all images are side by side, a warpgroup walks down two of them, and all have the
// same output channels.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "core/types.h"
#include "cuda/device/index.cuh"

namespace convt2d::cuda::crimp {

constexpr int kRows = 64;                             // of an instruction
constexpr int kLine = 128, kLineNumbers = kLine / 2;  // bytes of a row of an operand
constexpr int kLineEights = kLineNumbers / 8;
constexpr int kSlice = 16;      // channels in of an instruction
constexpr int kMostSlices = 4;  // of a stage
constexpr int kMostStages = 16;
constexpr int kWarpLines = 8;  // rows of y that a warp makes of a row of x

// Widths of a strip, by which kernels are told apart, in eights of pixels: even ones, since the copy engine takes twice the time
// for rows that start between 32 bytes.
constexpr int kWidths = 8;
CONVT2D_HOST_DEVICE constexpr int eights_of(int row) { return 2 * row + 2; }
CONVT2D_HOST_DEVICE constexpr int boxes_of(int eights) {
  return (eights + kLineEights - 1) / kLineEights;
}
// Of a strip's last box.
CONVT2D_HOST_DEVICE constexpr int last_eights(int eights) {
  return eights - (boxes_of(eights) - 1) * kLineEights;
}
// Rows of y of a warp, so many eights of each.
CONVT2D_HOST_DEVICE constexpr int box_bytes(int eights) { return kWarpLines * eights * 16; }
// Rows of a box of so many eights are swizzled if the copy engine can; of others, two meet a bank.
CONVT2D_HOST_DEVICE constexpr bool is_swizzled(int eights) { return (eights & (eights - 1)) == 0; }

// Warpgroups that multiply, of a block, as far as registers go, and one warp that asks for what they do.
CONVT2D_HOST_DEVICE constexpr int most_teams(int eights) { return eights <= 12 ? 4 : 3; }
CONVT2D_HOST_DEVICE constexpr int threads_of(int teams) { return teams * 128 + 32; }

// The same of words. Kernels are told apart by their columns.
constexpr int kWordSlice = 8, kStripWords = kLine / 4, kTeamStrips = kRows / kStripWords;
constexpr int kColumnWidths = 5;
CONVT2D_HOST_DEVICE constexpr int columns_of(int row) {
  return row == 0 ? 32 : row == 1 ? 64 : row == 2 ? 96 : row == 3 ? 128 : 192;
}
CONVT2D_HOST_DEVICE constexpr int most_teams_of_words(int columns) {
  return columns <= 64 ? 4 : columns <= 128 ? 3 : 2;
}
// Rows of y of a strip.
CONVT2D_HOST_DEVICE constexpr int strip_bytes(int columns) { return columns / 2 * kLine; }

// Everything a block needs, passed by value.
struct Params {
  void* y;
  const void* bias;         // or null
  int32_t groups, columns;  // the latter: channels out of a group
  int32_t stride, pad, x_h;
  int32_t y_h, width;  // the latter: of x and y
  int32_t teams;
  int32_t row_tiles;                          // of the channels out of all teams, of a group
  int32_t strips;                             // of a row; of words, that blocks have, of all images
  int32_t segments, segment_rows;             // of x
  int32_t items, walkers;                     // the latter: blocks
  int32_t slices, chunks;                     // of a stage; stages of K
  int32_t stages, stage_bytes, weight_bytes;  // the latter: of a chunk
  int32_t last_at, weights_at, stages_at, shared_bytes;
  FastDivide by_row_tiles, by_groups, by_strips, by_segments;
  int32_t channels;  // out, of a block
  // Of words.
  int32_t batch, reduce;  // the latter: channels in of a group
  const void* w;
  FastDivide by_row_strips;  // strips of an image
};

// Of y whole boxes of a warp, and that of a strip's last columns. Words have x and y alone.
struct Maps {
  CUtensorMap x, w, y, last;
};

// Shared memory: the stages' barriers; of words what rows of y start from; of all warps' outputs whole boxes, and last ones;
// weights, stages.
constexpr int kBiasAt = kMostStages * 16, kOutAt = 1024;
static_assert(kBiasAt + columns_of(kColumnWidths - 1) / 2 * 4 <= kOutAt);

}  // namespace convt2d::cuda::crimp
