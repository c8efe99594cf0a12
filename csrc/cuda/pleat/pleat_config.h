// pleat: forward of 4 x 4 kernels with stride 2, 16-bit NCHW, rows of x of whole eights of pixels or of whole pairs.
//
// As fold does, it multiplies operands as they lie in memory:
//
//   products[(co, kh, kw), pixel] = sum over ci of w[ci][(co, kh, kw)] * x[ci][pixel]
//
// and an output is the sum of four of them: of tap rows kh and kh + 2 in two rows of x, of tap columns kw and kw + 2 in two
// neighbouring pixels. Here they meet in registers. A warp's 16 rows of an instruction are an output channel's taps, so a lane (g, t)
// has tap g and tap g + 8: kernel rows kh and kh + 2 of the same column. Pixels of a tile are whole rows of x, so the row above is a
// number of registers before: what a lane adds needs nobody. Tap columns kw and kw + 2 are lanes g and g ^ 2, of which each
// adds up every second output, after one shuffle for both.
//
//   w    [64 rows][channel in][128 B]     swizzled; a warpgroup's rows: four output channels
//   x    [64 pixels][channel in][128 B]   likewise, twice: 128 pixels that follow each other, or two rows of a strip
//   out  of a warp: rows of y of its output channel, which follow each other in memory, as they will lie there among 16 bytes
//
// A block walks down an image with 16 output channels, four of each warpgroup, by tiles of 128 pixels; the last row's upper
// products wait in registers for the next tile. Rows of y count from before the padding: block b is those that rows b and b - 1 of x
// reach, 2 b and 2 b + 1. An image may be cut into segments of blocks; such a one starts a row of x earlier.
//
// Rows of more than 64 pixels are cut into strips of 64, side by side; only the last one ends where they do, and stores what the one
// before has not. A block goes down a segment strip by strip, from left to right, so nothing is multiplied twice between them: what
// the last pixel of a row adds to the next strip waits in shared memory, for the very lane that left it. Weights are brought again
// only where a stage had those of another chunk or item.
//
//   left  of a warp: [block][row of y][column], sums
//   out   of a warp: a tile's rows of y in the strip, each as it will lie in memory among 16 bytes
//
// Rows of no whole eights, "flat": a tile's pixels still follow each other, rows start anywhere among them, and a lane has the pair of
// pixels 4 e + t of every eight e. A row is a number of pairs, so a pair is never of two rows, and the one above it is so many
// pairs before: some whole eights, which are registers, and up to three lanes, another shuffle for each value. Outputs of the block
// below the last row of x are those of the pairs behind it, which have no products of their own. The last pairs' upper products wait
// for the next tile as if they lay before it. For that, and for the copy engine, all tiles but an image's last are whole eights. Of
// small images a tile has two, each in 64 columns of the instruction, which have room for the block below it too.
//
//   out   of a warp: of each image
#pragma once

#include <cuda.h>

#include <cstdint>

#include "core/types.h"
#include "cuda/device/index.cuh"

namespace convt2d::cuda::pleat {

constexpr int kKernel = 4, kStride = 2, kTaps = kKernel * kKernel;
// Eights of pixels of a row of x, by which kernels are told apart: a Plan's row is one less. Behind them, strips have a kernel;
// then flat ones have.
constexpr int kMostEights = 8, kFlat = kMostEights + 1, kFlatKernels = 8;
constexpr int kKernels = kFlat + kFlatKernels;
constexpr int kStrip = kMostEights * 8;
CONVT2D_HOST_DEVICE constexpr bool has_strips(int row) { return row == kMostEights; }
CONVT2D_HOST_DEVICE constexpr int eights_of(int row) {
  return has_strips(row) ? kMostEights : row + 1;
}
CONVT2D_HOST_DEVICE constexpr bool is_flat(int row) { return row >= kFlat; }
constexpr int kPair = 2, kPairs = 8 / kPair;  // pixels; of an eight

// Four warpgroups, since adding up takes many instructions, and one warp that asks for what they multiply.
constexpr int kGroups = 4, kConsumers = 128 * kGroups, kThreads = kConsumers + 32;
constexpr int kPixels = 128, kRows = 64;  // of a stage, of an instruction
constexpr int kGroupChannels = kRows / kTaps, kBlockChannels = kGroups * kGroupChannels;
constexpr int kLine = 128, kLineNumbers = kLine / 2;  // bytes of a row of an operand
constexpr int kSlice = 16;                            // channels in of an instruction
constexpr int kMostSlices = 4;                        // of a stage
constexpr int kMostStages = 16;
CONVT2D_HOST_DEVICE constexpr int tile_rows(int eights) { return kPixels / 8 / eights; }
// Of an instruction: the least of those there are that has a tile's.
CONVT2D_HOST_DEVICE constexpr int tile_width(int eights) {
  const int pixels = tile_rows(eights) * eights * 8;
  return pixels <= 96 ? 96 : pixels <= 120 ? 120 : kPixels;
}
// Of flat rows: whole eights of one; columns of an instruction, 112 for two images of 64 and 48. The others are what is filled by rows of
// 12 (of 8 or 16 together), 10 and 12, 18, 20, 28, 36 and 60.
struct FlatTile {
  int eights, width;
};
CONVT2D_HOST_DEVICE constexpr FlatTile flat_tile(int row) {
  constexpr FlatTile kTiles[kFlatKernels] = {{0, 112}, {1, 96},  {1, 120}, {2, 72},
                                             {2, 120}, {3, 112}, {4, 72},  {7, 120}};
  return kTiles[row - kFlat];
}
// How many images a tile may have.
CONVT2D_HOST_DEVICE constexpr int flat_images(int row) { return row == kFlat ? 2 : 1; }
// The least rows of `pairs` that are whole eights together; such ones in a tile, none if there is no room.
CONVT2D_HOST_DEVICE constexpr int whole_rows(int pairs) { return pairs % 2 ? kPairs : kPairs / 2; }
CONVT2D_HOST_DEVICE constexpr int flat_rows(int pairs, int width) {
  return width / kPair / pairs / whole_rows(pairs) * whole_rows(pairs);
}

// Everything a block needs, passed by value. 32-bit element offsets: larger tensors are declined.
struct Params {
  void* y;
  const void* bias;                 // or null
  int32_t groups, reduce, columns;  // channels of a group
  int32_t x_h, x_w, y_h, y_w, pad_h, pad_w;
  int32_t row_tiles;               // of 16 output channels, of a group
  int32_t segments, segment_rows;  // of blocks of rows of y
  int32_t strips;                  // of a row
  int32_t items, walkers;          // the latter: blocks
  int32_t slices, chunks;          // of a stage; stages of K
  int32_t stages, stage_bytes, x_bytes;
  int32_t fresh;  // stages of an item, before their weights lie there from the ring's last turn
  int32_t out_at, out_bytes, left_at, left_bytes;  // of a warp
  int32_t shared_bytes;
  FastDivide by_row_tiles, by_groups, by_segments;
  int32_t batch, images, tile_rows, early_rows;  // flat: of a tile; before a segment
};

struct Maps {
  CUtensorMap x, w;
};

// Bytes: what a block of rows leaves for the next strip; a strip's piece of a row of y, with 16 bytes among which it starts, and an
// odd number of 64, since lanes put numbers into two of them at once.
constexpr int kLeft = kStride * 2 * 4, kPiece = 320;
static_assert(kPiece >= kStride * (kStrip + 1) * 2 + 16 && kPiece / 64 % 2 == 1);

// Shared memory: the stages' barriers, stages, outputs, what strips leave.
constexpr int kStagesAt = 1024;
static_assert(kMostStages * 16 <= kStagesAt);

}  // namespace convt2d::cuda::pleat
