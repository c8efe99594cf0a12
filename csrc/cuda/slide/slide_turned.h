// slide's turned tiles: any rows of x, also such that are no whole 16 bytes, and kernel rows of any length; stride 1.
//
// Rows of x that follow each other go round a ring in shared memory, turned: a pixel is a row of channels there, so that
// any tap, also of another kernel column, is another address. So no sums slide.
//
//   output[row][column] = sum over i, j, ci of w[ci][co][last - i][last - j] * x[ci][low_h + row + i * tap_rows][low_w + column + j]
//
//   weights    [tap, the last one first][8 channels][64 output channels][16 B], resident
//   as copied  [channel][kCopied pixels]: a row of x, from a multiple of 16 bytes on
//   turned     [block of channels][pixel][32, 64 or 128 B], swizzled: a row of x
//   staging    as slide_config.h draws it
//
// To the copy engine neighbouring planes that together are whole 16 bytes are one row: so many `residues` there are, and a
// row of x comes as one box for each. Channels of one residue start equally far into 16 bytes and lie together along K.
//
// A block walks down strips of `kStrip` columns; kTurnedGroups warpgroups multiply, each one row of y of a step, and the
// warps of another turn rows.
#pragma once

#include "cuda/slide/slide_config.h"

namespace convt2d::cuda::slide {

constexpr int kTurnedRow = kTileCount;  // of a Plan

constexpr int kStrip = 128;
constexpr int kTurnedGroups = 3, kTurnedConsumers = 128 * kTurnedGroups;
constexpr int kTurners = 128, kTurnedThreads = kTurnedConsumers + kTurners;
constexpr int kTurnedRegisters = 144, kTurnerRegisters = 80;
constexpr int kCopied = 152;    // pixels, an odd number of 16 bytes: channels in different banks
constexpr int kMostReach = 17;  // pixels of x of an output: what fits beside those before its first
constexpr int kMostDepth = 64;  // channels of a block: 128 bytes
constexpr int kRaws = 2;        // rows as copied
constexpr int kLeastAhead = 2;  // slots beside those that kernel rows reach over
constexpr int kMostSlots = 24;
static_assert(kStrip + kMostReach - 1 + kVector - 1 <= kCopied);

struct TurnedParams : Params {
  int32_t low_h, low_w, tap_rows, kernel_w;
  int32_t residues, residue_shift;
  int32_t depth, depths;  // channels of a block; blocks
  int32_t pixels;         // of a turned row
  int32_t strips, steps;  // of an image; of a strip
  int32_t slots;          // of the ring
  int32_t raw_bytes, block_bytes, row_bytes;
  int32_t raws_at, rows_at;
};

CONVT2D_HOST_DEVICE int tap_bytes(const TurnedParams& p) {
  return p.reduce_padded / 8 * kRows * 16;
}
CONVT2D_HOST_DEVICE int steps_of(const TurnedParams& p) { return p.batch * p.strips * p.steps; }

// Barriers: `full` and `empty` of each slot, `full` of each row as copied. Where pixels go that nobody wants.
constexpr int kCopiedAt = kMostSlots * 16, kTurnedBiasAt = kCopiedAt + kRaws * 8,
              kDumpAt = kTurnedBiasAt + kRows * 4, kTurnedHeader = kDumpAt + 32 * 16;

}  // namespace convt2d::cuda::slide
