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
//   as copied  a ring [residue][image][channel][pixel]: channels of a block of one row
//   slots      a ring [remainder][image][pixel][32, 64 or 128 B], swizzled: the same, turned
//   staging    [warp that stores][8 channels][position]: the result
//
// Planes are copied as slide_turned.h says: so many `residues` together are whole 16 bytes. Columns of an instruction are the
// positions of a strip of one image, or of so many images as fit beside each other. Both warpgroups have the same
// channels and rows of the result by turns; or, where rows of the result share none of dY, two sets of channels and all rows.
#pragma once

#include "cuda/slide/slide_turned.h"

namespace convt2d::cuda::slide {

// Columns of an instruction; the first is kStridedRow of the family's plans. Images side by side often have a pixel more
// than a power of two.
constexpr int kWidths[] = {128, 136};
constexpr int kWidthCount = sizeof(kWidths) / sizeof(kWidths[0]),
              kStridedRow = kTurnedRow + kStripCount;

constexpr int kStridedThreads = kConsumers + kTurners;
constexpr int kMostKernelColumns = 16;
constexpr int kMostPitch = 63;    // units of 16 bytes of a row as copied
constexpr int kMostRaws = 8;      // stages as copied
constexpr int kMostStrided = 24;  // slots
constexpr int kMostParts = 32;    // of 32 pixels, of a row of all images
constexpr int kStridedPitch =
    272;  // bytes of a channel of the staging: rows of lanes in different banks

struct StridedParams : Params {
  int32_t low_h, low_w, step_h, step_w, step_magic;
  int32_t tap_rows, tap_columns, kernel_w;
  int32_t used_rows;  // a bit for each remainder of a row: whether anything reads it
  int32_t sets;       // of 64 input channels
  int32_t images, strip, strips, steps;  // side by side; positions of a strip; rows of the result
  int32_t residues, residue_shift, residue_octets, residue_octets_shift;
  int32_t octets, depth, depths;  // eights of channels; channels of a block; blocks
  int32_t pixels, image_pixels;   // that a strip reads of a row; of a slot, from image to image
  int32_t plane_pixels;           // of a slot, from remainder to remainder
  int32_t eights, pitch;          // copied eights of pixels of a channel of an image; bytes
  int32_t parts;
  int32_t boxes, box_channels, box_bytes, box_octets_shift;
  int32_t raws, raw_bytes, copied_bytes, slots, slot_bytes;
  int32_t weight_runs;                 // eight taps of a channel are 16 bytes
  int32_t octet_bytes, tap_bytes;      // of weights
  int32_t column[kMostKernelColumns];  // of a tap: bytes in a slot
  int32_t aligned;                     // rows of the result and of the staging are whole 16 bytes
  int32_t lanes_shift;                 // of those that store a row of an image
  int32_t raws_at, slots_at;
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

// Barriers: `full` and `empty` of each slot, and of each stage as copied; eights of pixels; where pixels go that nobody
// wants.
constexpr int kRawBarriers = kMostStrided * 16, kEightsAt = kRawBarriers + kMostRaws * 16,
              kStridedDumpAt = kEightsAt + kMostParts * 4 * 8,
              kStridedHeader = kStridedDumpAt + 32 * 16;

}  // namespace convt2d::cuda::slide
