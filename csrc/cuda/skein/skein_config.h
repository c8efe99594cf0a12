// skein: grad_weight of depthwise layers in NCHW. What one block computes, and the numbers it is told.
//
//   dW[kh, kw] = sum over images and pixels of x[h, w] * dY[h * stride_h - pad_h + kh, w * stride_w - pad_w + kw]
//
// of a channel. Rows of dY are q * stride_h - pad_h + f, with f < stride_h, and meet row q - j of x in kernel row kh = f + j * stride_h.
// A row of dY is pieces of eight numbers that start at whole eights. Number u of piece v meets pixel w = v * (8 / stride_w) + d in
// kernel column kw = u + pad_w - d * stride_w: which `shifts` d there are, and which tap u and d are, is the same for all pieces. So with
// places (q, v) as K of mma.sync
//
//   products[(f, u), (j, d)] = sum over places of dY[q * stride_h - pad_h + f][8 v + u] * x[q - j][v * (8 / stride_w) + d]
//
// both operands are what lies in shared memory: rows M of an instruction are the pieces of two rows of dY, turned by ldmatrix; columns
// N are pixels of x, fetched one by one, which serve all pairs of rows. Each output is found in up to eight products, which are added up
// in the end.
//
//   stage   dY [image][row][number], x [image][row][pixel]: a band of a plane, or whole planes of some images, zeros beside them
//
// Warps share the places of a stage. A block has a channel, and a part of the images' bands. Two blocks that differ in these alone may be
// a cluster, and add up their sums before they leave; otherwise, or where that is not enough, they write pieces of dW.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "core/types.h"
#include "cuda/device/index.cuh"

namespace convt2d::cuda::skein {

struct Tile {
  int pairs;   // of rows of dY, `f`
  int eights;  // of columns of the product
};
constexpr Tile kTiles[] = {{1, 2}, {2, 1}, {4, 1}};
constexpr int kTileCount = sizeof(kTiles) / sizeof(kTiles[0]);

constexpr int kWarps = 8;  // that multiply; one more asks the copy engine
constexpr int kThreads = (kWarps + 1) * 32;
constexpr int kPiece = 8;  // numbers
constexpr int kMostStages = 8;

CONVT2D_HOST_DEVICE constexpr int sums(Tile tile) { return tile.pairs * tile.eights * 4; }
// Places that an instruction takes, of numbers of so many bytes.
CONVT2D_HOST_DEVICE constexpr int step_places(int bytes) { return 32 / bytes; }

// For the copy engine: number, row, channel, image.
struct Maps {
  CUtensorMap x, y;
};

struct Params {
  const void *x, *y;
  void* weight;
  float* partials;
  int32_t piece_floats;
  int32_t stride[4];                     // of dW or of a piece: ci, co, kh, kw
  int32_t batch, groups, rows, columns;  // of a group: input, output channels
  int32_t x_h, x_w, y_h, y_w;
  int32_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;
  int32_t back;                 // how many j there are
  int32_t first_shift, shifts;  // d
  int32_t
      lead;  // pixels of a box of x before the first one's, since boxes start with whole 16 bytes
  int32_t pixels;              // of x, from piece to piece
  int32_t all_q, band, bands;  // a stage has `band` of all q,
  int32_t images;              // of so many images
  int32_t pieces, strips;      // of a row of dY, a stage has so many; strips of a row
  int32_t steps;               // of a stage: instructions' places
  int32_t x_pitch, y_pitch, x_at, stage_bytes, stages;
  int32_t bands_of_all;  // of all images: a block has some of them
  int32_t split, ranks;  // pieces of dW's sums; blocks of a cluster that add up one
  FastDivide by_strips, by_bands, by_band, by_pieces;
};

// Rows of an image in a stage, of dY and of x, and what the copy engine brings of them.
CONVT2D_HOST_DEVICE int y_rows(const Params& p) { return p.band * p.stride_h; }
CONVT2D_HOST_DEVICE int x_rows(const Params& p) { return p.band + p.back - 1; }
CONVT2D_HOST_DEVICE int copied_bytes(const Params& p) {
  return p.images * (y_rows(p) * p.y_pitch + x_rows(p) * p.x_pitch);
}
// Places in shared memory: barriers, where places are in dY and in x, sums of the warps, of the block, stages.
constexpr int kTablesAt = kMostStages * 16;
CONVT2D_HOST_DEVICE int table_bytes(const Params& p, int bytes) {
  return p.steps * step_places(bytes) * 4;
}
CONVT2D_HOST_DEVICE int sums_at(const Params& p, int bytes) {
  return kTablesAt + 2 * table_bytes(p, bytes);
}
CONVT2D_HOST_DEVICE int taps(const Params& p) { return p.kernel_h * p.kernel_w; }
CONVT2D_HOST_DEVICE int outputs_at(const Params& p, Tile tile, int bytes) {
  return sums_at(p, bytes) + kWarps * sums(tile) * 128;
}
CONVT2D_HOST_DEVICE int stages_at(const Params& p, Tile tile, int bytes) {
  return (outputs_at(p, tile, bytes) + taps(p) * 4 + 127) & -128;
}
// What is fetched behind the last stage, where a step has fewer rows than the tile, and multiplied to what nobody looks at.
CONVT2D_HOST_DEVICE int spare_bytes(const Params& p, Tile tile) {
  return (2 * tile.pairs - p.stride_h) * p.y_pitch;
}

}  // namespace convt2d::cuda::skein
