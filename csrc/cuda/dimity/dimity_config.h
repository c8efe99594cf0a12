// dimity: grad_weight of few channels of a group, rows of any length.
//
//   dW[ci, co, tap] = sum over pixels of x[ci, pixel] * dY[co, pixel * stride - near_pad + tap * d]
//
// As a GEMM on mma.sync: rows M = 16 output channels, columns N = 8 input channels, reduction K = pixels of a row. A step is
// a row of dY that a tap reaches, or a strip of it, and multiplies up to all kernel rows' rows of x.
//
//   dY  [stage][output channel][numbers from a multiple of 16 bytes of memory on]
//   x   [slot of the ring][input channel][likewise]
//
// Which pixels are neighbours along K is free, as long as both operands agree: a lane has four that lie side by side. What
// of dY's row these meet it fetches once, for all kernel rows; which of these numbers a tap takes is known to the compiler.
//
// Rows of x and dY: with s = stride / g, d = dilation / g, g being what divides both, a row of dY that kernel row kh and row
// i of x meet in is  q * stride + (kh % s) * dilation - near_pad  with  q = i + kh / s * d.  So there is a step for each q
// and each `phase` kh % s; it has the kernel rows of that phase, whose rows of x lie `back` = kh / s * d before q. Rows of x
// come with q, and stay as long as steps look back.
//
// Channels last, a row is pixels of the channels of some groups, and the copy engine brings boxes of them:
//
//   dY  [stage][slab of at most 128 bytes of channels][pixel][channel]      x  [slot][slab][pixel][channel]
//
// There a tap of a pixel is an address, and where the lanes' addresses lie is the same for all chunks (dimity_pixels.cuh).
//
// Warps differ in kernel rows, tap columns, output and input channels and groups (`units`), and where these are few, in
// chunks of 16 pixels (`parts`), and where rows are short, in steps (`turns`); sums of these are added up in the end. Blocks
// that share channels and taps of dW, but not pixels, write partial sums, [kh][kw][ci][co].
#pragma once

#include <cuda.h>

#include <cstdint>

#include "core/types.h"
#include "cuda/device/index.cuh"

namespace convt2d::cuda::dimity {

// Of a warp: kernel rows and tap columns, and `stride` from pixel to pixel where taps are neighbours. kAny: both are the
// problem's, and numbers are fetched tap by tap.
struct Tile {
  int taps_h, taps_w, stride;
  bool channels_last = false;
};
constexpr int kAny = 0;
constexpr Tile kTiles[] = {{3, 5, 3},          {4, 4, 2},          {3, 5, 2},
                           {3, 3, 1},          {3, 5, 1},          {4, 4, kAny},
                           {3, 5, kAny, true}, {4, 4, kAny, true}, {3, 3, kAny, true}};
constexpr int kTileCount = sizeof(kTiles) / sizeof(kTiles[0]);

constexpr int kOutputs = 16, kInputs = 8;  // channels of a warp
constexpr int kLanePixels = 4, kChunkPixels = 16;
constexpr int kWarps = 8;  // that multiply
// Beside them a warpgroup asks for rows, which takes a warp 100 cycles for each; of boxes there are few, and a lane asks. In strict
// fp32 it has registers for those that multiply.
constexpr int kBringers = 4, kThreads = (kWarps + kBringers) * 32;
constexpr int kStrictRegisters = 216, kBringerRegisters = 72;
constexpr int kMostChannels = 32;  // of a block, output or input: a lane of those that bring them
constexpr int kMostRows = 16;      // kernel rows of a block
constexpr int kMostChunks = 64, kMostStages = 8;

CONVT2D_HOST_DEVICE constexpr int sums(Tile tile) { return tile.taps_h * tile.taps_w * 4; }
// Numbers of dY that a lane fetches of a channel, and where among them is what a tap and a pixel meet in.
CONVT2D_HOST_DEVICE constexpr int lane_numbers(Tile tile) {
  return tile.stride == kAny ? tile.taps_w * kLanePixels
                             : (kLanePixels - 1) * tile.stride + tile.taps_w;
}
CONVT2D_HOST_DEVICE constexpr int lane_number(Tile tile, int tap, int pixel) {
  return tile.stride == kAny ? tap * kLanePixels + pixel : tap + pixel * tile.stride;
}

// Channels last: a stretch of a row in shared memory.
struct Boxes {
  int32_t pixel;          // bytes
  int32_t slabs, pitch;   // bytes from slab to slab
  int32_t count, pixels;  // boxes of a slab, pixels of one
  CONVT2D_HOST_DEVICE int bytes() const { return slabs * count * pixels * pixel; }
};
// For the copy engine: channel, pixel, row, image.
struct Maps {
  CUtensorMap x, y;
};

struct Params {
  const void *x, *y;
  void* weight;
  float* partials;
  int32_t piece_floats;
  int32_t stride[4];                     // of dW or of a piece: ci, co, kh, kw
  int32_t batch, groups, rows, columns;  // of a group: input, output channels
  int32_t x_h, x_w, y_h, y_w, x_plane, y_plane;
  int32_t x_numbers, y_numbers;  // of the tensors
  int32_t stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, kernel_h, kernel_w;
  int32_t phases;
  int32_t window;                            // rows of x that a step may look at
  int8_t phase[kMostRows], back[kMostRows];  // of a block's kernel rows
  int32_t chunks, reach;                     // of a strip; numbers of dY that it meets
  int32_t x_whole;                           // 1: rows of x are whole 16 bytes
  int32_t x_pitch, y_pitch;                  // bytes of a channel
  Boxes x_boxes, y_boxes;
  int32_t stages, slots, stage_bytes, slot_bytes;
  int32_t row_units, tap_units, out_units, in_units, group_units, parts, turns;
  int32_t row_blocks, tap_blocks, out_blocks, in_blocks, group_blocks;
  int32_t row_tiles;     // strips of a row
  int32_t strip_q;       // how many q a strip has
  int32_t all_q, split;  // of all strips of all images
  FastDivide by_q, by_tiles;
};

CONVT2D_HOST_DEVICE int block_rows(const Params& p, Tile tile) { return p.row_units * tile.taps_h; }
CONVT2D_HOST_DEVICE int block_taps(const Params& p, Tile tile) { return p.tap_units * tile.taps_w; }
CONVT2D_HOST_DEVICE int block_outputs(const Params& p) { return p.out_units * kOutputs; }
CONVT2D_HOST_DEVICE int block_inputs(const Params& p) { return p.in_units * kInputs; }
CONVT2D_HOST_DEVICE int units(const Params& p) {
  return p.row_units * p.tap_units * p.out_units * p.in_units * p.group_units;
}
// Warps that have the same sums to make.
CONVT2D_HOST_DEVICE int sharers(const Params& p) { return p.parts * p.turns; }
// Places in shared memory: barriers, stages, slots; in the end, where these were, sums. Barriers stay what they are: what is
// written to them as numbers may be lost.
CONVT2D_HOST_DEVICE constexpr int stages_at(Tile tile) {
  return tile.channels_last ? 1024 : kMostStages * 16;
}
CONVT2D_HOST_DEVICE int slots_at(const Params& p, Tile tile) {
  return stages_at(tile) + p.stages * p.stage_bytes;
}

}  // namespace convt2d::cuda::dimity
