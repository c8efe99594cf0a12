// treadle: grad_weight of few channels, stride 1, in TF32, NCHW or channels last, and in strict fp32 and 16 bits, NCHW.
//
//   dW[ci, co, kh, kw] = sum over lines l and columns w of x[ci, l + pad_h - kh, w] * dY[co, l, w - pad_w + kw]
//
// As a GEMM on wgmma: K is 256 bytes of neighbouring columns of x. The second operand, from shared memory, is four rows of x that
// follow each other, 32 input channels each: its columns N are (row of x, input channel). The first one comes from
// registers: 32 output channels of a line of dY, moved by a tap; an instruction has two such.
//
//   full    two taps of one line, times the three rows of x that kernel rows pair it with: N = 96
//   pair    one tap of both lines of a step, times all four rows: N = 128, of which a quarter is of no kernel row
//
// So an odd number of taps wastes little. A step is two lines of dY; a block goes down a strip of columns, and of the four
// rows of x a step needs the step before had two. They come in pairs to a ring, whose first slot has a copy behind the
// last, so that two pairs that follow each other always lie side by side.
//
//   x     [half of the columns][slot][row][input channel][128 B], swizzled
//   dY    NCHW            [stage][line][copy][output channel][words], an odd number of 16 bytes, so lanes meet no bank twice
//         channels last   [stage][line][pixel][128 B], swizzled
//
// Words of K must be neighbours along columns for channels to be rows: what lies so in memory, NCHW's x, the copy engine
// brings, and what wants none of that, channels-last dY. The other operand, whose rows may start anywhere (NCHW's dY) or are
// to be turned (channels-last x), two warpgroups bring through registers, pair by pair in turn.
//
// Channels last, a slice of eight columns has the even ones first: four lanes then fetch pixels two apart, which the
// swizzle puts into different banks.
//
// Strict fp32: behind x lies what the tensor core cuts off of it, so x comes through registers as well; a thread splits what
// it fetches, and sums of a batch are added up apart.
//
// 16 bits: a word is two columns, so taps at odd columns have a copy of dY of their own, one column on: its words are mixed
// of two neighbours while they are in registers. So a tap is an address again, and those who multiply fetch words alone.
//
// Blocks that share dW but not the pixels write partial sums, [kh][kw][ci][co].
#pragma once

#include <cstdint>
#include <initializer_list>

#include "core/types.h"
#include "cuda/device/index.cuh"

namespace convt2d::cuda::treadle {

// Taps of a kernel row, and what the two warpgroups that multiply have of them; those that share have all of them, of
// every second batch.
struct Role {
  int first, full, pair;  // tap; instructions of a line, of a step
};
struct Tile {
  int taps;
  Role role[2];
  bool share = false, strict = false, halves = false;  // halves: 16 bits
};
constexpr Tile kTiles[] = {
    {3, {{0, 1, 1}, {0, 1, 1}}, true},
    {7, {{0, 2, 0}, {4, 1, 1}}},
    {3, {{0, 1, 0}, {2, 0, 1}}, false, true},
    {4, {{0, 1, 0}, {2, 1, 0}}, false, true},
    {3, {{0, 1, 1}, {0, 1, 1}}, true, false, true},
    {7, {{0, 2, 0}, {4, 1, 1}}, false, false, true},
};
constexpr int kTileCount = sizeof(kTiles) / sizeof(kTiles[0]), kFirstStrict = 2, kFirstHalves = 4;

constexpr int kChannels = 32, kRows = 3;  // of a block, input and output alike; kernel rows
// Bytes of K: of an instruction, of a strip; words of half a strip. Instructions of a batch; batches of a strip.
constexpr int kSliceBytes = 32, kStripBytes = 256, kHalf = kStripBytes / 8;
CONVT2D_HOST_DEVICE constexpr int slices(Tile tile) { return tile.strict ? 2 : 4; }
CONVT2D_HOST_DEVICE constexpr int batches(Tile tile) {
  return kStripBytes / kSliceBytes / slices(tile);
}
constexpr int kSlice = kSliceBytes / 4;  // pixels of an instruction, channels last
CONVT2D_HOST_DEVICE constexpr int size(Tile tile) { return tile.halves ? 2 : 4; }
CONVT2D_HOST_DEVICE constexpr int columns(Tile tile) { return kStripBytes / size(tile); }
CONVT2D_HOST_DEVICE constexpr int slots(Tile tile) { return tile.strict ? 3 : 6; }
CONVT2D_HOST_DEVICE constexpr int stages(Tile tile) {
  return tile.halves ? 3 : tile.strict ? 4 : 5;
}

constexpr int kGroups = 2, kConsumers = 128 * kGroups, kThreads = 2 * kConsumers;
// Of a thread; together no more than the block starts with, or it waits for ever.
CONVT2D_HOST_DEVICE constexpr int bringer_registers(Tile tile) { return tile.strict ? 96 : 88; }
CONVT2D_HOST_DEVICE constexpr int consumer_registers(Tile tile) {
  return 256 - bringer_registers(tile);
}

// Of x: a row, a pair of them, all slots of half a strip.
constexpr int kRowBytes = kChannels * 128, kPairBytes = 2 * kRowBytes;
CONVT2D_HOST_DEVICE constexpr int plane_bytes(Tile tile) { return (slots(tile) + 1) * kPairBytes; }
CONVT2D_HOST_DEVICE constexpr int x_bytes(Tile tile) {
  return (tile.strict ? 4 : 2) * plane_bytes(tile);
}
// Of dY: pixels of a line, channels last; words that are loaded of a channel, in 16 bits from a column early on; words from one
// channel to the next; copies of a line.
constexpr int kPixels = 72;
CONVT2D_HOST_DEVICE constexpr int line_words(Tile tile) {
  return tile.halves ? (columns(tile) + tile.taps) / 2 + 1 : columns(tile) + tile.taps - 1;
}
CONVT2D_HOST_DEVICE constexpr int pitch_words(Tile tile) { return line_words(tile) > 68 ? 76 : 68; }
CONVT2D_HOST_DEVICE constexpr int copies(Tile tile) { return tile.halves ? 2 : 1; }
CONVT2D_HOST_DEVICE constexpr int copy_bytes(Tile tile) {
  return kChannels * pitch_words(tile) * 4;
}
CONVT2D_HOST_DEVICE constexpr int line_bytes(Tile tile, bool channels_last) {
  return channels_last ? kPixels * 128 : copies(tile) * copy_bytes(tile);
}
CONVT2D_HOST_DEVICE constexpr int stage_bytes(Tile tile, bool channels_last) {
  return 2 * line_bytes(tile, channels_last);
}

// Shared memory: barriers of slots and stages; x; dY. In the end the block's part of dW is there, [kernel row][tap][input
// channel][output channel].
constexpr int kStageBarriers = 256, kXAt = 1024;
CONVT2D_HOST_DEVICE constexpr int y_at(Tile tile) { return kXAt + x_bytes(tile); }
constexpr int kSumPitch = kChannels + 4;
CONVT2D_HOST_DEVICE constexpr int shared_bytes(Tile tile, bool channels_last) {
  return y_at(tile) + stages(tile) * stage_bytes(tile, channels_last);
}
CONVT2D_HOST_DEVICE constexpr int block_sums(Tile tile) {
  return kRows * tile.taps * kChannels * kChannels;
}
constexpr bool tiles_fit() {
  for (const Tile tile : kTiles)
    for (const bool last : {false, !tile.strict && !tile.halves})
      if (shared_bytes(tile, last) > 227 * 1024 || pitch_words(tile) / 4 % 2 == 0 ||
          pitch_words(tile) < line_words(tile) || kPixels < kStripBytes / 4 + tile.taps - 1 ||
          block_sums(tile) / kChannels * kSumPitch * 4 > x_bytes(tile) ||
          16 * slots(tile) > kStageBarriers || kStageBarriers + 16 * stages(tile) > kXAt)
        return false;
  return true;
}
static_assert(tiles_fit() && kPixels % 8 == 0);
static_assert(256 * kConsumers <= 65536);

struct Params {
  const void *x, *y;
  void* weight;
  float* partials;
  int32_t piece_floats;
  int32_t x_stride[4], y_stride[4];      // n, channel, h, w
  int32_t stride[4];                     // of dW or of a piece: ci, co, kh, kw
  int32_t batch, groups, rows, columns;  // of a group: input, output channels
  int32_t x_h, x_w, y_h, y_w, pad_h, pad_w, kernel_h, kernel_w;
  int32_t row_blocks, tap_blocks, out_blocks, in_blocks;
  int32_t line_pairs, tiles,
      last_batches;  // of a strip; strips of an image, and batches of its last one
  int32_t steps, split;
  FastDivide by_pairs, by_tiles;  // line_pairs, tiles
};

}  // namespace convt2d::cuda::treadle
