// twill: forward of 3 x 3 kernels with stride 2 and padding 0 or 1, 16-bit NCHW, rows of x that are whole eights of pixels.
//
// With padding 1, row 2 h of y is tap row 1 of row h of x; row 2 h + 1 is tap row 2 of row h and tap row 0 of row h + 1; without, both are
// one lower, and h starts a row above x. So it is with columns. A tap
// row is another address of x, 16 bytes or more away, so the tensor core adds these up; a tap column is not, as x lies in memory:
//
//   sums[tap column][co, pixel] = sum over ci and the tap rows of a row of y of w[ci][co, tap] * x[ci][pixel]
//
// and a lane adds tap columns 2 and 0 of neighbouring pixels, one of two of which is its own. Nothing is turned.
//
//   w    [64 numbers of (channel out, tap)][channel in][128 B]   swizzled, of 64 channels out; lanes fetch kernel rows of two
//        channels as words, those of two channels in make a register
//   x    [64 pixels][channel in][128 B]   likewise, twice: 128 pixels that follow each other; and the same a row below
//   out  of a warp  [box of columns][row of x][channel out][column]   swizzled; rows of y, every second one, for the copy engine. If
//        they start anywhere  [channel out][row of x][column], each a run of its own, as far behind 16 bytes as in memory
//
// One warpgroup has the rows of y with two tap rows, the other those with one: this is done earlier, and ahead by the stages there
// are, so what it stores and adds up goes on while the first one multiplies, and the other way round. A tile is as many rows of x as
// 128 pixels hold, or of a wider one a strip, which ends a pixel early at least, since that wants the next one.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "core/types.h"
#include "cuda/device/index.cuh"

namespace convt2d::cuda::twill {

constexpr int kKernel = 3, kStride = 2, kTaps = kKernel * kKernel;

constexpr int kGroups = 2, kConsumers = 128 * kGroups, kThreads = kConsumers + 128;
// Sums are 192.
constexpr int kConsumerRegisters = 240, kProducerRegisters = 24;

constexpr int kChannels = 64, kMostPixels = 128;  // of a tile
// By a Plan's row; `runs`: rows of y may start anywhere.
struct Tile {
  int pixels;
  bool runs;
};
constexpr Tile kTiles[] = {{128, false}, {96, false}, {64, false}, {128, true}};
constexpr int kTileCount = sizeof(kTiles) / sizeof(kTiles[0]);
constexpr int kLine = 128, kLineNumbers = 64;  // of a row of an operand: bytes, numbers
constexpr int kSlice = 16, kSlices = 2;   // channels in of an instruction, instructions of a stage
constexpr int kDepth = kSlice * kSlices;  // channels in of a stage
constexpr int kBox = kDepth * kLine;      // bytes
constexpr int kPixelBoxes = kMostPixels / kLineNumbers,
              kWeightBoxes = kChannels * kTaps / kLineNumbers;
constexpr int kStageBytes = (2 * kPixelBoxes + kWeightBoxes) * kBox;
constexpr int kMostStages = 4;
constexpr int kEight = 8, kEights = kMostPixels / kEight;

// Of a warp's outputs: 16 channels, in boxes of these and of the columns of `box` eights of pixels, swizzled.
constexpr int kOutChannels = 16, kEightBytes = kEight * kStride * 2,
              kOutBytes = kOutChannels * kEights * kEightBytes;
constexpr int kMostBox = 128 / kEightBytes;
constexpr int kUnit = 8;  // numbers of 16 bytes

// Everything a block needs, passed by value. 32-bit element offsets: larger tensors are declined.
struct Params {
  void* y;
  const void *x, *w;                // for repairs
  const void* bias;                 // or null
  int32_t groups, reduce, columns;  // channels of a group
  int32_t x_h, x_w, y_h, y_w, pad_h, pad_w;
  int32_t first_row;       // of x: the one above if a row of y needs no other
  int32_t rows, own, box;  // of a tile: rows of x, their pixels; eights of a box of y
  int32_t items, walkers;  // the latter: blocks
  int32_t chunks, stages;  // of K; of the ring
  int32_t shared_bytes;
  FastDivide by_row_tiles, by_strips, by_blocks, by_groups;
  uint32_t row_starts;  // a bit for each eight of a tile's pixels that a row of x starts with
  int32_t out_bytes;    // of a warp
  int32_t run_pitch, run_step;  // bytes from channel to channel, from row to row
  int32_t eights;               // of a tile
  int32_t
      place[kEights];  // where an eight's outputs are among a warp's, but for what a channel adds
};

struct Maps {
  CUtensorMap x, w, y[kGroups];
};

// Shared memory: the stages' barriers, stages, outputs.
constexpr int kStagesAt = 1024;
static_assert(kMostStages * 16 <= kStagesAt && kStageBytes % 1024 == 0 && kOutBytes % 1024 == 0);

}  // namespace convt2d::cuda::twill
