// slide's strided tiles: grad_input in 16-bit NCHW where positions are several pixels apart.
//
//   output[h][w] = sum over i, j, co of w[ci][co][i][j] * dY[co][h * step_h + low_h + i * tap_rows][w * step_w + low_w + j * tap_columns]
//
// Rows of dY go through shared memory one by one, once (slide_rows.h): each is multiplied by the kernel rows of all rows of the
// result that read it, which are few, and each of these is one warpgroup's, whose sums wait for the next row. Pixels are sorted
// by what is left of their column when divided by the step: so any tap of neighbouring positions is an address. Both
// warpgroups have the same channels and rows of the result by turns; or, where rows of the result share none of dY, two sets
// of channels and all rows.
//
//   staging    [warp that stores][8 channels][position]: the result, unless its rows are whole 16 bytes
#pragma once

#include "cuda/slide/slide_rows.h"

namespace convt2d::cuda::slide {

// Columns of an instruction; the first is kStridedRow of the family's plans. Images side by side often have a pixel more
// than a power of two.
constexpr int kWidths[] = {128, 136};
constexpr int kWidthCount = sizeof(kWidths) / sizeof(kWidths[0]),
              kStridedRow = kTurnedRow + kStripCount;

constexpr int kStridedRegisters = 176, kStridedTurnerRegisters = 72;
constexpr int kMostKernelColumns = 16;
constexpr int kStridedPitch =
    272;  // bytes of a channel of the staging: rows of lanes in different banks

struct StridedParams : RowParams {
  int32_t tap_rows, tap_columns;
  int32_t used_rows;  // a bit for each remainder of a row: whether anything reads it
  int32_t column[kMostKernelColumns];  // of a tap: bytes in a slot
  int32_t aligned;      // rows of the result are whole 16 bytes, and stay so beside each other
  int32_t image_magic;  // which then divides positions by those of an image
  int32_t lanes_shift;  // else: of those that store a row of an image
};

CONVT2D_HOST_DEVICE int row_groups(const StridedParams& p) { return kGroups / p.sets; }

}  // namespace convt2d::cuda::slide
