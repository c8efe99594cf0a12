// fringe: grad_weight of NCHW tensors where output channels times taps are few, so nearly all bytes are x's.
//
//   dW[ci, (co, kh, kw)] = sum over pixels of x[ci, pixel] * dY[co, pixel * stride - pad + tap * d]
//
// As a GEMM on wgmma: rows M = input channels, columns N = (co, kh, kw) in the order of dW, K = pixels. Planes of x are rows
// along K as they lie: the copy engine brings them and no thread touches them. The other operand is written out in shared
// memory, for each column 128 bytes of pixels, by warps that fetch it number by number from dY as the copy engine brought it,
// with zeros around it:
//
//   x     [input channel][128 bytes of pixels], swizzled
//   y     [column][128 bytes of pixels], likewise
//   raw   [output channel][row of dY][words], what a band's pixels meet
//
// A K tile is 128 bytes of pixels; a band is some rows of an image, or of a strip of one where rows are long. Pixels of a
// band of whole rows follow each other (`flat`), so rows may have any length; the last tile of a band may have fewer steps,
// and zeros in y where its pixels end. In a strip each row has tiles of its own.
//
// Two warpgroups multiply: they differ in input channels, or, where a block has 64 of these, in tiles; their sums are then
// added in the end. Blocks that share dW but not the pixels write partial sums, in the order of dW.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "core/types.h"
#include "cuda/device/index.cuh"

namespace convt2d::cuda::fringe {

// Columns of an instruction; instructions of a warpgroup, each of 64 input channels.
struct Tile {
  int width, count;
  bool loose = false;  // planes, or rows of dY, are no whole 16 bytes: 16 bits, 4 taps of step 2
};
constexpr Tile kTiles[] = {{48, 1}, {48, 2}, {48, 3}, {136, 2}, {136, 2, true}};
constexpr int kTileCount = sizeof(kTiles) / sizeof(kTiles[0]);
CONVT2D_HOST_DEVICE constexpr int columns(Tile tile) { return tile.width * tile.count; }
constexpr int kMostColumns = columns(kTiles[kTileCount - 1]);
template <class T>
constexpr bool exists(Tile tile) {
  return !tile.loose || sizeof(T) == 2;
}

constexpr int kGroups = 2, kConsumers = 128 * kGroups;
constexpr int kWriters = 7,
              kThreads = kConsumers + 32 * (kWriters + 1);  // warps; the last one asks
constexpr int kConsumerRegisters = 176, kWriterRegisters = 80;
constexpr int kRows = 64;                        // input channels of an instruction
constexpr int kRow = 128, kStep = 32;            // bytes of pixels: of a tile, of an instruction
constexpr int kMostStages = 8, kRaws = 2;        // tiles, bands under way
constexpr int kMostTiles = 64;                   // of a band
constexpr int kBoxWords = 256, kBoxLines = 256;  // at most

// Everything a block needs, passed by value. 32-bit element offsets: larger tensors are declined.
struct Params {
  const void *x, *y;
  void* weight;
  float* partials;  // else [pieces][ci][co][kh][kw]
  int32_t piece_floats;
  int32_t batch, groups, rows, columns;  // channels of a group
  int32_t x_h, x_w, y_h, y_w;
  int32_t stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, kernel_h, kernel_w;
  int32_t row_groups;  // warpgroups that differ in input channels
  int32_t row_blocks, box_rows;
  int32_t flat;
  int32_t band_rows, band_tiles;    // a strip's: tiles of a row
  int32_t bands_h, bands_w, bands;  // of an image
  int32_t lead;                     // bytes of a line of dY before the first one that a pixel meets
  int32_t line_bytes, lines, raw_bytes, raw_room;  // of a band's dY
  int32_t y_at, stage_bytes, stages, stages_at, shared_bytes;
  int32_t split;
  // Loose: planes that are whole 16 bytes together, rows of the sum of each; rows of dY of a box, its words, and boxes.
  int32_t classes, class_rows, raw_rows, raw_words, raw_boxes;
  int32_t run;  // columns that are stored at once
  // Runs of a row of the sum; pixels of a row that are listed; bands, bands_w; and rows of taps, if loose.
  FastDivide by_runs, by_width, by_bands, by_bands_w, by_kernel_h;
};

// Loose: a box of dY's rows, of all channels, as it comes.
CONVT2D_HOST_DEVICE constexpr int raw_box_bytes(const Params& p) {
  return (p.columns * p.raw_words * 4 + 127) / 128 * 128;
}

struct Maps {
  CUtensorMap x, y;
};

// Shared memory: barriers of the stages and of what comes of dY; where columns and a band's pixels stand in it; the stages;
// dY as it lies. In the end the sums, in the place of the stages.
constexpr int kRawBarriersAt = 16 * kMostStages, kColumnsAt = 256;
// Loose: bytes of pixels of a row, which starts up to three words late, and 16 for banks; taps of a kernel row; zeros behind
// what is listed, which pixels beside dY read.
constexpr int kLooseRow = 144, kLooseTaps = 4, kZeroBytes = 16;
constexpr uint32_t kNowhere = 0xffff;
constexpr int kPixelsAt = kColumnsAt + 4 * 288;
static_assert(kRawBarriersAt + 16 * kRaws <= kColumnsAt && kMostColumns <= 288 &&
              kPixelsAt % 16 == 0);
CONVT2D_HOST_DEVICE constexpr int sum_pitch(Tile tile) { return (columns(tile) + 8) * 4; }
CONVT2D_HOST_DEVICE constexpr int sum_bytes(Tile tile) { return kGroups * kRows * sum_pitch(tile); }

}  // namespace convt2d::cuda::fringe
