// slide's rows: how tiles that multiply turned rows of the source, each of which is turned once, are told of them.
//
//   weights    [tap][8 channels][channel of the result][16 B], resident, 16 bytes between taps so that lanes meet no bank twice
//   as copied  [warp that turns] a ring [image][eight channels][pixel]: of one row
//   slots      a ring [remainder][image][pixel][32, 64 or 128 B], swizzled: a block of channels of a row, turned
//
// Planes are copied as slide_turned.h says: so many `residues` together are whole 16 bytes. Eight warps turn, each of them eight
// channels of a row at a time, which it asks for itself: as many as a row has eights, up to all, share a row, and so many
// sets of them as there are take rows by turns. Where a pixel goes is found without dividing: by adding, or looked up, since
// dividing for each would take longer than turning; what nobody reads goes behind the slot's pixels. Columns of an instruction
// are the positions of a strip of one image, or of so many images as fit beside each other.
#pragma once

#include "cuda/slide/slide_turned.h"

namespace convt2d::cuda::slide {

constexpr int kRowWarps = 8;  // that turn
constexpr int kRowThreads = kConsumers + 32 * kRowWarps;
constexpr int kMostStep = 16;
constexpr int kMostBeside = 32;    // pixels that are read of a row, but lie beside it
constexpr int kOutside = 1 << 30;  // of a set of planes, where zeros are
constexpr int kMostPitch = 63;     // units of 16 bytes of a row as copied
constexpr int kMostRaws = 4;       // stages of a warp that turns
constexpr int kMostRowSlots = 24;
constexpr int kMostParts = 32;  // of 32 pixels, of a row of all images
constexpr int kPartsAtOnce = 3;

struct RowParams : Params {
  int32_t low_h, low_w, step_h,
      step_w;          // of the first position: the first pixel it reads; from one to the next
  int32_t step_shift;  // log2 of step_w, if that is 1, 2 or 4; else -1
  int32_t kernel_w, reach_w;
  int8_t used_count, used_row[kMostStep];  // remainders of a row that anything reads
  int32_t sets;                            // of 64 channels of the result
  int32_t positions;                       // of a row of the result
  int32_t images, strip, strips, steps;    // side by side; positions of a strip; rows of positions
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
  int32_t zero;                    // is 0, which the compiler does not know
  int32_t nowhere;                 // of a slot: where pixels go that nobody reads
  int32_t weight_runs;             // eight taps of a channel are 16 bytes
  int32_t octet_bytes, tap_bytes;  // of weights
  int32_t places_at, octets_at, raws_at, slots_at;
};

CONVT2D_HOST_DEVICE int tile_channels(const RowParams& p) { return kRows * p.sets; }
CONVT2D_HOST_DEVICE int image_groups(const RowParams& p) {
  return (p.batch + p.images - 1) / p.images;
}
CONVT2D_HOST_DEVICE int steps_of(const RowParams& p) {
  return image_groups(p) * p.strips * p.steps;
}
// Rows of the source that so many rows of positions reach over.
CONVT2D_HOST_DEVICE int rows_of_steps(const RowParams& p, int count) {
  return (count - 1) * p.step_h + p.reach + 1;
}

// Blocks of channels from one that a warp turns to its next one. There are no fewer slots, or it could take the phase before the
// one that it waits for, when nobody has read the slot, for that one.
CONVT2D_HOST_DEVICE int most_slots_passed(const RowParams& p) {
  const int step = p.team >> p.block_shift;
  return kRowWarps / p.team * p.depths - (p.octets / p.team - 1) * step;
}

// Barriers: `full` and `empty` of each slot, `full` of each stage as copied. In front of the places of a row's pixels, of 2 bytes
// each, those of what stands before the first one; behind them, of 2 bytes, where parts start in a copied channel.
constexpr int kRawBarriers = kMostRowSlots * 16,
              kRowHeader = kRawBarriers + kRowWarps * kMostRaws * 8;
constexpr int kPlacesBefore = kVector;
CONVT2D_HOST_DEVICE int places_of(const RowParams& p) { return kPlacesBefore + p.parts * 32; }

}  // namespace convt2d::cuda::slide
