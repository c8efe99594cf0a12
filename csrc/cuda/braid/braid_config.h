// braid: grad_weight in NCHW of kernels that have taps along one axis, in TF32 and 16 bits.
//
//   dW[ci, (co, tap)] = sum over images, rows h and columns w of x[ci, h, w] * dY[co, pixel that the tap meets]
//
// As a GEMM on wgmma: rows M = (co, tap) in the order of dW, columns N = input channels, K = a line of 128 bytes of a row of x.
// The copy engine brings all there is; what lies outside a tensor comes as zeros. x is the second operand as it lies. dY is
// the first one:
//
//   tall   taps down a column. A box of dY is the line of `taps` rows of some channels: rows along K in the order of M,
//          wherever the first row of dY is.
//   wide   taps along a row. What a line of x meets of dY's row comes as it lies, in parts of at most 256 numbers; a lane
//          fetches words of it, `stride` apart, since K are positions and a tap is one number further on. In 16 bits a word
//          has two taps, which are rows g and g + 8 of the lane, and words of two positions that follow each other are two
//          registers once their halves are put together.
//
// A slab is wgmma's 64 rows: as many output channels as their taps leave room for, in whole fours of rows. A block has two
// warpgroups of one slab or two each, and one warp that asks.
//
//   x     [input channel][128 B], swizzled
//   dY    tall  [slab][output channel][tap][128 B], swizzled
//         wide  [part][output channel][numbers], channels so far apart that lanes meet no bank twice
//
// Blocks that share dW but not the lines write partial sums, in the order of dW.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "core/types.h"
#include "cuda/device/index.cuh"

namespace convt2d::cuda::braid {

// Slabs of a warpgroup, and input channels of a block.
struct Tile {
  int slabs, width;
  bool wide;
};
constexpr Tile kTiles[] = {{2, 192, false}, {2, 128, false}, {1, 192, false}, {1, 128, false},
                           {1, 64, false},  {2, 128, true},  {1, 128, true},  {1, 64, true}};
constexpr int kTileCount = sizeof(kTiles) / sizeof(kTiles[0]);

constexpr int kGroups = 2, kConsumers = 128 * kGroups, kThreads = kConsumers + 128;
constexpr int kConsumerRegisters = 240, kProducerRegisters = 24;
static_assert(kConsumers * kConsumerRegisters + 128 * kProducerRegisters <= 65536);
constexpr int kSlab = 64;                // rows
constexpr int kLine = 128, kSlice = 32;  // bytes along K: of a chunk, of an instruction
constexpr int kSlices = kLine / kSlice;
constexpr int kMostStages = 8;

CONVT2D_HOST_DEVICE constexpr int block_slabs(Tile tile) { return kGroups * tile.slabs; }
// dY is behind x in a stage.
CONVT2D_HOST_DEVICE constexpr int x_bytes(Tile tile) { return tile.width * kLine; }

struct Params {
  const void *x, *y;
  void* weight;
  float* partials;  // else [piece][ci][co][tap]
  int32_t piece_floats;
  int32_t batch, groups, rows, columns;  // of a group: input and output channels
  int32_t x_h, x_w, y_h, y_w;
  int32_t taps, step_h, step_w, pad_h, pad_w;
  int32_t sums;                  // of an input channel: output channels times taps
  int32_t channels;              // output channels of a slab
  int32_t sum_tiles, row_tiles;  // blocks side by side
  int32_t lines, last_slices;    // of a row of x; of the last of these
  int32_t chunks, split;         // lines of all images
  int32_t stages, stage_bytes;
  // Wide: bytes from channel to channel of dY and of a part, and pixels of x of one; numbers of a box before the first tap;
  // where dY of a slice is.
  int32_t pitch, part_bytes, parts, part_positions, lead;
  int32_t slice_at[kSlices];
  FastDivide by_lines, by_rows;  // lines, x_h
};

struct Maps {
  CUtensorMap x, y;
};

// Rows of a slab that are sums, and of a block.
CONVT2D_HOST_DEVICE int slab_rows(const Params& p) { return p.channels * p.taps; }
CONVT2D_HOST_DEVICE int block_rows(const Params& p, Tile tile) {
  return block_slabs(tile) * slab_rows(p);
}

// Shared memory: barriers, stages. In the end the sums are in the place of the stages, [input channel][row].
constexpr int kHeader = 1024;
static_assert(16 * kMostStages <= kHeader);
CONVT2D_HOST_DEVICE constexpr int sum_pitch(Tile tile) {
  return (block_slabs(tile) * kSlab + 4) * 4;  // lanes meet no bank twice
}
CONVT2D_HOST_DEVICE int shared_bytes(const Params& p, Tile tile) {
  const int stages = p.stages * p.stage_bytes, sums = tile.width * sum_pitch(tile);
  return kHeader + (stages > sums ? stages : sums);
}

}  // namespace convt2d::cuda::braid
