// heddle: grad_weight of NCHW tensors of few channels, whose rows of x are whole 16 bytes.
//
//   dW[ci, co, tap] = sum over pixels of x[ci, pixel] * dY[co, pixel * stride - near_pad + tap * d]
//
// As a GEMM on mma.sync: rows M = output channels, columns N = input channels, reduction K = pixels. A block goes down a
// strip of x, row by row. A step is a row of it, up to 128 words of every channel; of dY it brings (cp.async) the lines
// that the step before had not, into a ring of lines.
//
//   x    [stage][input channel][words of pixels]
//   dY   [slot of the ring][output channel][16 bytes of memory]
//
// Which pixels are neighbours along K is free, as long as both operands agree. So a lane has eight words of a row that lie
// side by side: the quarter of a `chunk` of 32 words. With what of dY's line meets these, 8 words of stride 1 and the taps
// of a kernel row beyond, it has the operands of all these taps: they differ in which of its registers they are. A line of
// dY lies in 16 bytes as in memory, so its first number is one of these (`lead`): all of a lane's words move by that much
// first, which is two selections a word.
//
// Warps of a block differ in kernel rows, output channels and input channels (`units`), and where these are few, in
// chunks (`parts`), whose sums are added up in the end.
//
// Blocks that share channels and taps of dW, but not pixels, write partial sums, [kh][kw][ci][co].
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/types.h"
#include "cuda/device/index.cuh"

namespace convt2d::cuda::heddle {

// What a warp sums: 16 output channels, 8 * `inputs` input channels, `taps_h` x `taps_w` neighbouring taps, which
// serve kernel rows with `stride` from pixel to pixel; and how many warps a block has.
struct Tile {
  int taps_h, taps_w, inputs, stride, warps;
};
// The first are not for strict fp32, whose sums of a chunk take as many registers again.
constexpr Tile kTiles[] = {{1, 7, 2, 1, 12}, {1, 5, 1, 3, 12}, {1, 7, 2, 1, 8}, {1, 5, 1, 3, 8}};
constexpr int kTileCount = sizeof(kTiles) / sizeof(kTiles[0]);
constexpr int kFirstStrict = 2;

constexpr int kOutputs = 16;     // channels of a warp
constexpr int kLaneWords = 8;    // of x in a chunk
constexpr int kChunkWords = 32;  // of all lanes that share a channel
constexpr int kMostChunks = 4;   // of a step
constexpr int kSlices = 4;       // of a chunk: an instruction each
constexpr int kMostStages = 4, kToldBytes = 8;

CONVT2D_HOST_DEVICE constexpr int threads(Tile tile) { return tile.warps * 32; }
CONVT2D_HOST_DEVICE constexpr int sums(Tile tile) {
  return tile.taps_h * tile.taps_w * tile.inputs * 4;
}
// Of a line of dY, words that a lane's words of x meet; and the vectors of 16 bytes that they may lie in.
CONVT2D_HOST_DEVICE constexpr int lane_words(Tile tile) {
  return (kLaneWords - 1) * tile.stride + tile.taps_w;
}
CONVT2D_HOST_DEVICE constexpr int lane_vectors(Tile tile) { return (lane_words(tile) + 6) / 4; }

struct Params {
  const void *x, *y;
  void* weight;
  float* partials;
  int32_t piece_floats;
  int32_t stride[4];                     // of dW or of a piece: ci, co, kh, kw
  int32_t batch, groups, rows, columns;  // of a group: input, output channels
  int32_t x_h, x_w, y_h, y_w, y_plane;
  int32_t stride_h, pad_h, pad_w, dilation_h, kernel_h, kernel_w;
  int32_t line_step;  // rows of dY from one line to the next,
  int32_t lines, new_lines,
      tap_lines;  // those of a step, what the next one adds, from one kernel row to the next
  int32_t chunks, chunk_shift;          // of a step, a power of two
  int32_t y_vectors, x_pitch, y_pitch;  // of a line of a channel, of which the last two are bytes
  int32_t slots, stages;
  int32_t row_units, out_units, in_units, parts;
  int32_t row_blocks, tap_blocks, out_blocks, in_blocks;
  int32_t row_tiles, steps, split;
  FastDivide by_vectors, by_rows, by_tiles;  // of a line of a channel; of x; its strips in a row
};

CONVT2D_HOST_DEVICE int block_rows(const Params& p, Tile tile) { return p.row_units * tile.taps_h; }
CONVT2D_HOST_DEVICE int block_outputs(const Params& p) { return p.out_units * kOutputs; }
CONVT2D_HOST_DEVICE int block_inputs(const Params& p, Tile tile) {
  return p.in_units * tile.inputs * 8;
}
CONVT2D_HOST_DEVICE int units(const Params& p) { return p.row_units * p.out_units * p.in_units; }
CONVT2D_HOST_DEVICE int stage_bytes(const Params& p, Tile tile) {
  return block_inputs(p, tile) * p.x_pitch;
}
CONVT2D_HOST_DEVICE int slot_bytes(const Params& p) { return block_outputs(p) * p.y_pitch; }

}  // namespace convt2d::cuda::heddle
