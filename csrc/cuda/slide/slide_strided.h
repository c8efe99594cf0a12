// slide's strided tiles: grad_input in 16-bit NCHW where positions are several pixels apart.
//
//   output[h][w] = sum over i, j, co of w[ci][co][i][j] * dY[co][h * step_h + low_h + i * tap_rows][w * step_w + low_w + j * tap_columns]
//
// Rows of dY go through shared memory one by one, once: each is multiplied by the kernel rows of all rows of the result that
// read it, which are few, and each of these is one warpgroup's, whose sums wait for the next row. A row comes as it lies,
// from a multiple of 16 bytes on, is turned into pixels of channels, and sorted by what is left of a pixel's column when
// divided by the step: so any tap of neighbouring positions is an address.
//
//   weights    [tap][8 channels][input channel][16 B], resident, 16 bytes between taps so that lanes meet no bank twice
//   as copied  [warp that turns] a ring [image][eight channels][pixel]: of one row
//   slots      a ring [remainder][image][pixel][32, 64 or 128 B], swizzled: a block of channels of a row, turned
//   staging    [warp that stores][8 channels][position]: the result, unless its rows are whole 16 bytes
//
// Planes are copied as slide_turned.h says: so many `residues` together are whole 16 bytes. Eight warps turn, each of them eight
// channels of a row at a time, which it asks for itself: as many as a row has eights, up to all, share a row, and so many
// sets of them as there are take rows by turns. Where a pixel goes is looked up, since dividing for each would take longer than
// turning; what nobody reads goes behind the slot's pixels. Columns of an instruction are the positions of a strip of one
// image, or of so many images as fit beside each other. Both warpgroups have the same channels and rows of the result by
// turns; or, where rows of the result share none of dY, two sets of channels and all rows.
#pragma once

#include "cuda/slide/slide_turned.h"

namespace convt2d::cuda::slide {

// Columns of an instruction; the first is kStridedRow of the family's plans. Images side by side often have a pixel more
// than a power of two.
constexpr int kWidths[] = {128, 136};
constexpr int kWidthCount = sizeof(kWidths) / sizeof(kWidths[0]),
              kStridedRow = kTurnedRow + kStripCount;

constexpr int kStridedWarps = 8;  // that turn
constexpr int kStridedThreads = kConsumers + 32 * kStridedWarps;
constexpr int kStridedRegisters = 176, kStridedTurnerRegisters = 72;
constexpr int kMostKernelColumns = 16, kMostStep = 16;
constexpr int kMostBeside = 32;    // pixels that are read of a row, but lie beside it
constexpr int kOutside = 1 << 30;  // of a set of planes, where zeros are
constexpr int kMostPitch = 63;    // units of 16 bytes of a row as copied
constexpr int kMostRaws = 4;      // stages of a warp that turns
constexpr int kMostStrided = 24;  // slots
constexpr int kMostParts = 32;    // of 32 pixels, of a row of all images
constexpr int kPartsAtOnce = 3;
constexpr int kStridedPitch =
    272;  // bytes of a channel of the staging: rows of lanes in different banks

struct StridedParams : Params {
  int32_t low_h, low_w, step_h, step_w;
  int32_t step_shift;  // log2 of step_w, if that is 1, 2 or 4; else -1
  int32_t tap_rows, tap_columns, kernel_w, reach_w;
  int32_t used_rows;  // a bit for each remainder of a row: whether anything reads it
  int8_t used_count, used_row[kMostStep];  // how many of these bits; which
  int32_t sets;       // of 64 input channels
  int32_t images, strip, strips, steps;  // side by side; positions of a strip; rows of the result
  int32_t residues, residue_shift, residue_octets, residue_octets_shift;
  int32_t octets, depth, depths;  // eights of channels; channels of a block; blocks
  int32_t block_shift;            // log2 of a block's eights
  int32_t team;                   // warps that turn a row
  int32_t pixels, image_pixels;   // that a strip reads of a row; of a slot, from image to image
  int32_t plane_pixels;           // of a slot, from remainder to remainder
  int32_t pitch;                  // bytes of a copied channel of an image
  int32_t image_parts, parts;     // of 32 pixels; of all images, and some more
  int32_t box_channels;           // of an eight that exist
  int32_t raws, raw_bytes, copied_bytes, slots, slot_bytes;
  int32_t zero;                        // is 0, which the compiler does not know
  int32_t nowhere;                     // of a slot: where pixels go that nobody reads
  int32_t weight_runs;                 // eight taps of a channel are 16 bytes
  int32_t octet_bytes, tap_bytes;      // of weights
  int32_t column[kMostKernelColumns];  // of a tap: bytes in a slot
  int32_t aligned;                     // rows of the result are whole 16 bytes, and stay so beside each other
  int32_t image_magic;                 // which then divides positions by those of an image
  int32_t lanes_shift;                 // else: of those that store a row of an image
  int32_t places_at, octets_at, raws_at, slots_at;
};

CONVT2D_HOST_DEVICE int tile_channels(const StridedParams& p) { return kRows * p.sets; }
CONVT2D_HOST_DEVICE int row_groups(const StridedParams& p) { return kGroups / p.sets; }
CONVT2D_HOST_DEVICE int image_groups(const StridedParams& p) {
  return (p.batch + p.images - 1) / p.images;
}
CONVT2D_HOST_DEVICE int steps_of(const StridedParams& p) {
  return image_groups(p) * p.strips * p.steps;
}
// Rows of dY that so many rows of the result reach over.
CONVT2D_HOST_DEVICE int rows_of_steps(const StridedParams& p, int count) {
  return (count - 1) * p.step_h + p.reach + 1;
}

// Blocks of channels from one that a warp turns to its next one. There are no fewer slots, or it could take the phase before the one
// that it waits for, when nobody has read the slot, for that one.
CONVT2D_HOST_DEVICE int most_slots_passed(const StridedParams& p) {
  const int step = p.team >> p.block_shift;
  return kStridedWarps / p.team * p.depths - (p.octets / p.team - 1) * step;
}

// Barriers: `full` and `empty` of each slot, `full` of each stage as copied. In front of the places of a row's pixels, of 2 bytes
// each, those of what stands before the first one; behind them, of 2 bytes, where parts start in a copied channel.
constexpr int kRawBarriers = kMostStrided * 16,
              kStridedHeader = kRawBarriers + kStridedWarps * kMostRaws * 8;
constexpr int kPlacesBefore = kVector;
CONVT2D_HOST_DEVICE int places_of(const StridedParams& p) { return kPlacesBefore + p.parts * 32; }

}  // namespace convt2d::cuda::slide
