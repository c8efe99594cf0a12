// fold: what one block computes, and the numbers it is told.
//
// As a GEMM, with nothing gathered or shifted before it:
//
//   products[(co, tap), pixel] = sum over ci of w[ci][(co, tap)] * x[ci][pixel]
//
// Both operands lie in memory as rows of what is not reduced (NCHW), and so they come to shared memory, swizzled. Numbers
// of 16 bits the tensor core turns; words it cannot, so threads fetch weights into registers, and x is turned where it lies
// (fold_words.cuh). What makes it a transposed convolution is done afterwards: products go to shared memory, and each
// output collects those that land on it, from above to below, taps of a row in a fixed order.
//
//   weights    [line of rows][channel][128 B]
//   x          16 bits: [64 pixels][channel][128 B]; words: [8 channels][32 pixels][channel][128 B]
//   products   [row of a block][pixel, with zeros where a row of x ends]
//
// A row is an (output channel, tap); a block of 64 has as many whole channels as fit. The kernels are 3 x 3 and 4 x 4, the
// stride is 2. A block of threads walks x downwards, a tile of whole rows (or a strip of one row) at a time; sums of
// outputs that later rows of x will add to wait in shared memory (`carried`).
//
// An item is a piece of work that no other block's sums depend on: some rows of x, a strip of columns, an image or a few
// small ones. It starts with the rows above its own that reach into its outputs.
//
// Flat: where the kernel is its stride, 1 x 1 or 2 x 2, an output is one product, which goes to memory from its register
// (fold_flat.cuh). A tile is a run of pixels, whatever rows they are in: a strip of a plane of one row. In 16 bits, 2 x 2
// and 4 x 4, these have a kernel of their own (fold_flat_halves.cuh), in which x may be shifted or not, weights may stay,
// and a warp lays its products out as memory has them.
//
// Crossed: pixels are rows of the instruction and weights its columns, TF32, 2 x 2 kernels that are their stride
// (fold_crossed.cuh). Lanes fetch x as it lies, so that nobody turns or shifts it; weights stay. Each warpgroup has stages
// of its own, of its part of a tile's pixels, and waits for no other.
//
// Shifted: the copy engine starts at multiples of 16 bytes, which 2, 4 or 8 neighbouring planes of 16 bits are together
// where each of them is not: a set. It brings pixels with some from before them, and three warps move them to where they
// belong (fold_shift.cuh). K has the first channels of a chunk's sets first, then the second ones, and so on.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "core/types.h"
#include "cuda/gather_axes.h"

namespace convt2d::cuda::fold {

constexpr int kStride = 2;

// Warpgroups multiply, each `row_blocks` x 64 rows times `width` pixels: rows of their own, `row_groups` of them, or other pixels
// of the same tile. Sums of a thread: row_blocks * width / 2. Of 112 pixels are rows of 14 and 28, and half a plane of 14 x 14.
struct Tile {
  int row_groups, row_blocks, width;
  bool strict = false;   // fp32 as it is, not TF32
  bool shifted = false;  // 16 bits, planes of x that are no whole 16 bytes
  bool flat = false;     // 16 bits, outputs that are products; planes of any size
  int groups = 2;  // warpgroups; four where sums are short: storing takes as long as multiplying
  bool crossed = false;  // outputs that are products: `width` pixels times all of a block
};
constexpr Tile kTiles[] = {{2, 2, 128},
                           {2, 1, 128},
                           {1, 1, 128},
                           {2, 2, 112},
                           {2, 1, 128, true},
                           {1, 1, 128, true},
                           {2, 2, 128, false, true},
                           {2, 1, 128, false, true},
                           {1, 1, 128, false, true},
                           {2, 2, 128, false, true, true},
                           {2, 2, 112, false, true, true},
                           {2, 1, 128, false, true, true},
                           {1, 1, 128, false, true, true},
                           {2, 1, 128, false, true, true, 4},
                           {1, 2, 64, false, false, false, 4, true}};
// From kFirstWords on, words alone.
constexpr int kTileCount = sizeof(kTiles) / sizeof(kTiles[0]), kFirstWords = 3, kFirstStrict = 4,
              kFirstShifted = 6, kFirstFlat = 9, kCrossed = 14;
// Of numbers of so many bytes.
CONVT2D_HOST_DEVICE constexpr bool has_tile(int row, int bytes) {
  return row < kFirstWords || (row >= kFirstShifted && row != kCrossed) == (bytes == 2);
}
static_assert(kTiles[kFirstStrict].strict && kTiles[kFirstShifted].shifted);
static_assert(kTiles[kFirstFlat].flat && !kTiles[kFirstFlat - 1].flat);
static_assert(kTiles[kCrossed].crossed);

CONVT2D_HOST_DEVICE constexpr int consumers(Tile tile) { return 128 * tile.groups; }
// Of the last warpgroup, one thread asks the copy engine; three warps help: they turn words, or shift pixels.
CONVT2D_HOST_DEVICE constexpr int threads(Tile tile) { return consumers(tile) + 128; }
constexpr int kHelpers = 3;
// Of numbers of so many bytes. Those who help need registers, for words more than for pixels. A launch of 640 threads has 96 for
// each, and together they get no more.
CONVT2D_HOST_DEVICE constexpr bool helped(Tile tile, int bytes) {
  return bytes == 4 || tile.shifted;
}
CONVT2D_HOST_DEVICE constexpr int consumer_registers(Tile tile, int bytes) {
  return tile.groups == 4 ? 104 : bytes == 4 || tile.flat ? 216 : tile.shifted ? 224 : 232;
}
CONVT2D_HOST_DEVICE constexpr int producer_registers(Tile tile, int bytes) {
  return tile.groups == 4 ? 64 : bytes == 4 || tile.flat ? 72 : tile.shifted ? 56 : 40;
}
CONVT2D_HOST_DEVICE constexpr int parts(Tile tile) { return tile.groups / tile.row_groups; }

constexpr int kRows = 64;   // of an instruction
constexpr int kLine = 128;  // bytes of rows or pixels of one channel
constexpr int kMostStages = 8;
constexpr int kRegionChannels = 8;  // of words that are turned together
constexpr int kRegion = kRegionChannels * kLine;

// Of numbers of so many bytes: in a line; channels of an instruction; in 16 bytes, at multiples of which copies start.
CONVT2D_HOST_DEVICE constexpr int line_numbers(int bytes) { return kLine / bytes; }
CONVT2D_HOST_DEVICE constexpr int slice_channels(int bytes) { return 32 / bytes; }
CONVT2D_HOST_DEVICE constexpr int vector_numbers(int bytes) { return 16 / bytes; }

CONVT2D_HOST_DEVICE constexpr int tile_pixels(Tile tile) { return tile.width * parts(tile); }
CONVT2D_HOST_DEVICE constexpr int row_blocks(Tile tile) {
  return tile.row_groups * tile.row_blocks;
}
// Those that there is room for: whole lines, of 16 bits and so of words.
CONVT2D_HOST_DEVICE constexpr int held_pixels(Tile tile) {
  return (tile_pixels(tile) + kLine / 2 - 1) / (kLine / 2) * (kLine / 2);
}
CONVT2D_HOST_DEVICE constexpr int tile_lines(Tile tile, int bytes) {
  return held_pixels(tile) / line_numbers(bytes);
}
CONVT2D_HOST_DEVICE constexpr int weight_lines(Tile tile, int bytes) {
  return row_blocks(tile) * kRows / line_numbers(bytes);
}
// Channels that a warp shifts at once: two groups of as many as its lanes have pieces of 16 bytes for.
CONVT2D_HOST_DEVICE constexpr int shifted_channels(Tile tile) {
  return 2 * 32 * 8 / held_pixels(tile);
}
// Floats of a row of products: a multiple of 32 banks and 8, so that the four rows that half a warp stores lie in
// different ones.
CONVT2D_HOST_DEVICE constexpr int pitch(Tile tile) { return tile_pixels(tile) + 40; }
CONVT2D_HOST_DEVICE constexpr int product_bytes(Tile tile) { return kRows * pitch(tile) * 4; }

// Flat tiles of 16 bits: pixels of a row of x, by which a place in a tile is divided (divide()); where a warp lays out 16 rows
// of products.
constexpr int kMostFlatRow = 1 << 15;
CONVT2D_HOST_DEVICE constexpr int laid_bytes(Tile tile) {
  return 16 * held_pixels(tile) / parts(tile) * 2;
}

// Everything a block needs, passed by value. 32-bit element offsets: larger tensors are declined.
struct Params {
  void* destination;
  const void* bias;
  const void* weight;
  const void* source;
  int32_t weight_stride[4];
  int32_t batch, groups, reduce, columns;  // channels of one group
  int32_t x_h, x_w, y_h, y_w;
  int32_t kernel, pad_h, pad_w;
  int32_t number_bytes;
  int32_t depth, chunks;  // channels of a chunk
  int32_t box_chunks;     // whose x can come as one box
  int32_t stages;
  int32_t resident;       // the weights come once and stay
  int32_t copied;         // flat tiles of 16 bits: the copy engine brings them
  int32_t together;       // pixels of a row of x whose outputs a lane stores at once
  int32_t row_channels;   // output channels of 64 rows
  int32_t column_blocks;  // blocks side by side
  int32_t tile_rows;      // rows of x; more than one: whole ones
  int32_t tile_images;    // more than one: whole ones
  int32_t image_lines;    // of each; of the tile, if it is no whole image; crossed: of a plane
  int32_t strips, strip_positions;  // pairs of outputs of a row
  int32_t segments, segment_rows;   // of x
  int32_t reach_rows;               // rows of x above its own that an item starts with
  int32_t low_w;         // column of x, from a strip's first position, that its products start with
  int32_t row_pitch;     // products of a row of x, zeros included
  int32_t rows_apart;    // pairs of rows of y from one image of a tile to the next
  int32_t carried_rows;  // of y
  int32_t items, walkers;
  uint32_t rows_apart_magic;
  int32_t flat;
  int32_t row_w;  // flat: pixels of a row of x
  uint32_t row_magic;
  int32_t paired;     // pixels of a pair are neighbours among the products too
  int32_t packed;     // so are outputs, in a word
  int32_t row_shift;  // 2^row_shift lanes are side by side in a row
  int32_t weights_at, stages_at, products_at, carried_at, shared_bytes;
  int32_t set_shift;   // 2^set_shift neighbouring planes are whole 16 bytes
  int32_t plane_rest;  // pixels of a plane behind its last whole 16 bytes
};

// What the copy engine is told: boxes of all that a stage has, and of one line.
struct Maps {
  CUtensorMap x, w, x_line, w_line;
};

CONVT2D_HOST_DEVICE int taps(const Params& p) { return p.kernel * p.kernel; }
CONVT2D_HOST_DEVICE int weight_bytes(const Params& p, Tile tile) {  // of a chunk
  return row_blocks(tile) * kRows * p.depth * p.number_bytes;
}
CONVT2D_HOST_DEVICE int x_bytes(const Params& p, Tile tile) {
  return held_pixels(tile) * p.depth * p.number_bytes;
}
// Strict fp32: x twice, as its numbers' upper halves and what these leave.
CONVT2D_HOST_DEVICE int low_bytes(const Params& p, Tile tile) {
  return tile.strict ? x_bytes(p, tile) : 0;
}
CONVT2D_HOST_DEVICE int stage_bytes(const Params& p, Tile tile) {
  return x_bytes(p, tile) + low_bytes(p, tile) + (p.resident ? 0 : weight_bytes(p, tile));
}
CONVT2D_HOST_DEVICE int block_channels(const Params& p, Tile tile) {
  return row_blocks(tile) * p.row_channels;
}
// Sums that wait: of a channel, and of a block of rows, once.
CONVT2D_HOST_DEVICE int carried_step(const Params& p) {
  return p.carried_rows * kStride * p.row_pitch * 4;
}
CONVT2D_HOST_DEVICE int carried_bytes(const Params& p) { return p.row_channels * carried_step(p); }

// Shared memory: barriers, the bias, and what has its place in Params.
constexpr int kHelpedAt = 16 * kMostStages, kBiasAt = kHelpedAt + 8 * kMostStages, kHeader = 2048;
// Crossed tiles: lines of a warpgroup; pixels of a line, some of which are there for second planes to begin later; each
// warpgroup's ring.
constexpr int kPartLines = 2;
CONVT2D_HOST_DEVICE int line_pixels(const Params& p) {
  return line_numbers(p.number_bytes) - (p.set_shift > 0 ? vector_numbers(p.number_bytes) : 0);
}
constexpr int kRingsAt = kBiasAt + 4 * kRows * 4, kRingBytes = 16 * kMostStages;
static_assert(kRingsAt + 4 * kRingBytes <= kHeader);

}  // namespace convt2d::cuda::fold
