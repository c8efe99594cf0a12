// reed's lapped tiles: kernel rows of two strides, where each output of a row is a product of one pixel and one of the pixel
// before. Both products are of the same channels, so a GEMM of operands as they lie has them as two rows, a stride apart:
//
//   D[(co, tap), pixel] = sum over ci of w[ci, co, tap] * x[ci, pixel]
//   y[co, q * s + a]    = D[(co, a), q] + D[(co, a + s), q - 1]
//
// Half as many products are sums of twice as many channels otherwise, for as much arithmetic, but here pixels are fetched once for
// both, and nothing is turned: the copy engine fills a ring of stages of 128 bytes of K, which holds most of what a block
// ever reads, so that all of it is on its way at once.
//
//   w    [64 or 32 rows][channel]     128 bytes of rows side by side, swizzled; of channels last 128 bytes of output channels
//   x    [segment][channel][pixel]    a segment is 32 pixels of a row; channels last [segment][pixel][channel]
//
// A warp has one segment, and rows so that a thread has both products of an output but for the first of each eight pixels.
#pragma once

#include "cuda/reed/reed_held.h"

namespace convt2d::cuda::reed {

constexpr int kLappedRow = kWideRow + 1;  // Plan.row
constexpr int kLappedRows = 128, kSegments = 4, kSegment = 32;
constexpr int kLappedWarps = 8, kLappedThreads = kLappedWarps * 32 + 32;  // the last one asks
constexpr int kLappedStages = 7;
// Of a stage; those of pixels are as many.
constexpr int kLappedWeights = kLappedRows * kChunkBytes;
constexpr int kLappedStage = 2 * kLappedWeights;
static_assert(kSegments * kSegment == kLappedRows);
constexpr int kLappedBytes = kLappedStages * kLappedStage + 1024;

struct Lapped {
  const void* bias;
  void* y;
  int32_t terms, chunks, outputs;
  int32_t row_tiles, column_tiles;
  int32_t hop_bits;     // log2 of rows of a tile from a tap to the one a stride behind
  int32_t lap;          // pixels that segments of a row share
  FastDivide by_row;    // segments of a row of x
  FastDivide by_image;  // rows of an image of x
  int32_t rows, x_w;    // rows of all images; pixels
  int32_t stride, pad, y_w;
  int32_t y_image, y_row, y_channel, y_pixel;  // numbers from one to the next
};

}  // namespace convt2d::cuda::reed
