// slide's turned tiles: any rows of x, also such that are no whole 16 bytes, and kernel rows of any length; stride 1.
//
// Rows of x that follow each other go round a ring in shared memory, turned: a pixel is a row of channels there, so that
// any tap, also of another kernel column, is another address. So no sums slide.
//
//   output[row][column] = sum over i, j, ci of w[ci][co][last - i][last - j] * x[ci][low_h + row + i * tap_rows][low_w + column + j]
//
//   weights    [tap, the last one first][8 channels][64 output channels][16 B], resident
//   of pairs   [column of the kernel, the last one first][8 channels][zeros, rows of the kernel][32 output channels][16 B]
//   as copied  [channel][pixels]: a row of x, from a multiple of 16 bytes on
//   turned     [block of channels][pixel][32, 64 or 128 B], swizzled: a row of x
//   staging    as slide_config.h draws it
//
// To the copy engine neighbouring planes that together are whole 16 bytes are one row: so many `residues` there are, and a
// row of x comes as one box for each. Channels of one residue start equally far into 16 bytes and lie together along K.
//
// A block walks down strips of columns; kTurnedGroups warpgroups multiply, each one row of y of a step, and the
// warps of another turn rows. Up to 32 output channels fill but half of an instruction; so a warpgroup may take a pair of
// rows of y, to which a row of x adds by neighbouring rows of the kernel: those lie one after the other, with zeros
// before the first and behind the last.
#pragma once

#include "cuda/slide/slide_config.h"

namespace convt2d::cuda::slide {

// Columns of a strip, which are the columns of an instruction; the first is kTurnedRow of the family's plans. Rows of y
// have often two or four columns more than a power of two.
constexpr int kStrips[] = {64, 128, 136};
constexpr int kStripCount = sizeof(kStrips) / sizeof(kStrips[0]), kTurnedRow = kTileCount;
// Pixels of a row as copied: with room for a kernel row and for what stands before the first, and an odd number of 16 bytes,
// so that channels start in different banks.
CONVT2D_HOST_DEVICE constexpr int copied_pixels(int strip) { return strip == 64 ? 88 : 152; }
CONVT2D_HOST_DEVICE constexpr int most_columns(int strip) {  // of a kernel
  return copied_pixels(strip) - strip - (kVector - 1) + 1;
}

constexpr int kTurnedGroups = 3, kTurnedConsumers = 128 * kTurnedGroups;
constexpr int kTurners = 128, kTurnedThreads = kTurnedConsumers + kTurners;
constexpr int kTurnedRegisters = 152, kTurnerRegisters = 56;
constexpr int kMostDepth = 64;  // channels of a block: 128 bytes
// Rows as copied: so many bytes of them want to be under way, which are more rows of few channels.
constexpr int kLeastCopied = 2, kMostCopied = 6, kCopiedBytes = 36 << 10;
constexpr int kLeastAhead = 1;  // slots beside those that a warpgroup multiplies
constexpr int kMostSlots = 24;

struct TurnedParams : Params {
  int32_t low_h, low_w, tap_rows, kernel_w;
  int32_t residues, residue_shift;
  int32_t depth, depths;  // channels of a block; blocks
  int32_t pixels;         // of a turned row
  int32_t strip;          // columns
  int32_t strips, steps;  // of an image; of a strip
  int32_t slots;          // of the ring
  int32_t raws;           // rows as copied
  int32_t group_rows;     // of y, of a warpgroup: 1, or 2 of half as many channels
  // Weights, in bytes: of the last tap; from tap to tap before it, in a row and in a column of the kernel; from 16
  // channels to the next.
  int32_t last_tap, tap_row, tap_column, weight_slice;
  int32_t raw_bytes, block_bytes, row_bytes;
  int32_t raws_at, rows_at;
};

CONVT2D_HOST_DEVICE int tile_channels(const TurnedParams& p) { return kRows / p.group_rows; }
CONVT2D_HOST_DEVICE int step_rows(const TurnedParams& p) { return kTurnedGroups * p.group_rows; }
// Rows of x that a warpgroup multiplies, of dilated kernels also those between them.
CONVT2D_HOST_DEVICE int group_reach(const TurnedParams& p) { return p.reach + p.group_rows; }
// Steps of kernel rows: of a pair, one more.
CONVT2D_HOST_DEVICE int kernel_steps(const TurnedParams& p) {
  return p.kernel_h + p.group_rows - 1;
}
CONVT2D_HOST_DEVICE int steps_of(const TurnedParams& p) { return p.batch * p.strips * p.steps; }

// Barriers: `full` and `empty` of each slot, `full` of each row as copied. Where pixels go that nobody wants.
constexpr int kCopiedAt = kMostSlots * 16, kTurnedBiasAt = kCopiedAt + kMostCopied * 8,
              kDumpAt = kTurnedBiasAt + kRows * 4, kTurnedHeader = kDumpAt + 32 * 16;

}  // namespace convt2d::cuda::slide
