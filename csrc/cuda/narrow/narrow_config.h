// narrow: what one block computes, and the numbers it is told.
//
// A GEMM for layers with so few output channels that a tile of any other family would be empty for the most part: here
// pixels are the 64 rows of an instruction, and its few columns are all that becomes of a pixel,
//
//   products[pixel][(phase, co, kw)] = sum over shift, ci of x[row - shift][ci][pixel] * w[ci][co][kh(phase, shift)][kw]
//
// Rows and columns of the destination are counted from before its padding: `row` stands for the outputs row * stride to
// row * stride + stride - 1, its phases. Kernel rows add up where they are multiplied, so each phase finds a kernel row, or
// zeros, at each shift. Kernel columns are added up through shared memory (narrow_collect.cuh).
//
//   weights    [shift][slice of channels][32 B of each column], resident; strict fp32: twice, high parts and low ones
//   x          a ring of rows, each brought once: [box of pixels][channel][32, 64 or 128 B], swizzled;
//              NHWC: [box of channels][pixel][32, 64 or 128 B]
//   products   of a warpgroup: [column][image][pixel], zeros between images
//
// In NCHW, 16 bits the tensor core turns; words it cannot, so threads fetch them into registers. NHWC wants no turning.
//
// A block walks items: some rows of a stretch of columns of an image, or of a few small ones, from above to below. Each
// warpgroup multiplies every kGroups-th row and collects it while others multiply.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "core/types.h"
#include "cuda/device/index.cuh"

namespace convt2d::cuda::narrow {

struct Tile {
  int width;            // columns
  bool strict = false;  // fp32 as it is, not TF32
};
constexpr Tile kTiles[] = {{16}, {24}, {32}, {64}, {16, true}, {24, true}, {32, true}, {64, true}};
constexpr int kTileCount = sizeof(kTiles) / sizeof(kTiles[0]), kFirstStrict = 4;

// Of the last warpgroup, one thread asks the copy engine.
constexpr int kGroups = 3, kConsumers = 128 * kGroups, kThreads = kConsumers + 128;
constexpr int kConsumerRegisters = 152, kProducerRegisters = 40;

constexpr int kRows = 64;        // pixels of an instruction
constexpr int kSliceBytes = 32;  // of channels of an instruction
constexpr int kMostStages = 16;
constexpr int kMostTaps = 16, kMostPhases = 8;  // of an axis
constexpr int kMostMargin = 16, kLeastRun = 16;

// Of numbers of so many bytes: a tile is one operand of words, of which rows are twice as long, and two of 16 bits.
CONVT2D_HOST_DEVICE constexpr int operands(int bytes) { return 4 / bytes; }
CONVT2D_HOST_DEVICE constexpr int tile_pixels(int bytes) { return operands(bytes) * kRows; }
CONVT2D_HOST_DEVICE constexpr int slice_channels(int bytes) { return kSliceBytes / bytes; }
CONVT2D_HOST_DEVICE constexpr int slice_weights(Tile tile) { return tile.width * kSliceBytes; }

// Everything a block needs, passed by value. 32-bit element offsets: larger tensors are declined.
struct Params {
  void* destination;
  const void* bias;
  const void* weight;
  const void* source;
  int32_t weight_group, weight_reduce, weight_column, weight_h, weight_w;  // strides
  int32_t batch, groups, reduce, columns;
  int32_t x_h, x_w, y_h, y_w;
  int32_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
  int32_t number_bytes;
  int32_t channels_last;                           // NHWC, else NCHW
  int32_t x_channel, x_pixel, y_channel, y_pixel;  // strides
  int32_t slices, reduce_padded;                   // of input channels; so many channels
  // How far above a row x adds to it: the most, and what there is, the most first.
  int32_t reach, shifts;
  int8_t shift[kMostTaps];
  // Kernel columns by which of the outputs of a position they add to: the first of each in `column`; byte of their products
  // from where those of the first column at the position are.
  int8_t first_column[kMostPhases + 1];
  int32_t column[kMostTaps];
  int32_t run, images;  // pixels of a row of a tile, of so many images
  int32_t line;         // bytes of pixels, or channels, that lie side by side
  int32_t margin;       // zeros before, between and after images
  int32_t pitch;        // floats of a column of products
  int32_t step;         // pixels from a stretch to the next
  int32_t sweeps;       // stretches
  int32_t positions;    // of a stretch, at most
  int32_t end_position;
  FastDivide by_positions, by_images, by_columns, by_sweeps, by_row_items;
  int32_t first_row, end_row;
  int32_t item_rows, row_items;  // of an item; items above each other
  int32_t items, walkers;
  int32_t stages, stage_bytes, box_bytes;  // box_bytes: of what is brought by one copy
  int32_t weights_bytes, products_bytes;   // products: of a warpgroup
  int32_t weights_at, stages_at, products_at, shared_bytes;
};

constexpr int kHeader = kMostStages * 16;

}  // namespace convt2d::cuda::narrow
