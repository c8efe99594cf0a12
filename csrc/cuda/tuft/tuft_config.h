// tuft: forward, NCHW, of kernels that are their stride, of 2, 4 or 8 columns, whatever planes of x are. What one block computes, and
// the numbers it is told.
//
//   products[pixel, (co, kh, kw)] = sum over ci of x[ci][pixel] * w[ci][(co, kh, kw)]
//
// A GEMM of operands as they lie, each of whose products is an output. Rows of the instruction are 64 pixels of a plane, a line;
// they come from registers, to which lanes fetch them wherever they start. Columns are those of w, which a block keeps.
//
//   x    [place][set][line, not swizzled]
//   w    [slice of K][line of 128 B of columns][pair of places][set][place of two][128 B, swizzled]; words are turned to rows along K
//
// The copy engine starts at multiples of 16 bytes, which 8 (words: 4) neighbouring planes always are together: a set. A channel has
// a place in its set. To the copy engine one place begins whole 16 bytes behind the one before, which is less than a plane by
// `plane_rest` pixels. So those of a later place lie further right in their lines, always by the same: its shift. Where shifts were
// too large for a line, a box has only some of the places.
//
// A slice of K is what an instruction takes: four sets, of which lanes t = 0 to 3 have one each, of 4 (words: 2) places. A chunk is
// four sets.
//
// Lines are numbered through all images, the last one of each plane with what it has: behind it are numbers of other channels, whose
// products nobody stores. Each warpgroup, a team, has lines and stages of its own, and a warp that asks the copy engine for them. Only
// the weights are shared, so that one team may store while others multiply.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "core/types.h"
#include "cuda/device/index.cuh"

namespace convt2d::cuda::tuft {

struct Tile {
  int width, teams;  // columns; sums of a thread are half as many
  // 16 bits, planes of an odd number of pixels: a word of every second place has halves of two pairs.
  bool odd;
};
constexpr Tile kTiles[] = {{256, 2, false}, {256, 2, true}, {128, 4, false}, {128, 4, true}};
constexpr int kTileCount = sizeof(kTiles) / sizeof(kTiles[0]);
// Of numbers of so many bytes.
CONVT2D_HOST_DEVICE constexpr bool has_tile(int row, int bytes) {
  return bytes == 2 || (kTiles[row].width <= 128 && !kTiles[row].odd);
}

CONVT2D_HOST_DEVICE constexpr int consumers(Tile tile) { return 128 * tile.teams; }
CONVT2D_HOST_DEVICE constexpr int threads(Tile tile) { return consumers(tile) + 128; }
// A launch of 640 threads has 96 for each, and together they get no more.
CONVT2D_HOST_DEVICE constexpr int consumer_registers(Tile tile) {
  return tile.teams == 4 ? 104 : 216;
}
CONVT2D_HOST_DEVICE constexpr int producer_registers(Tile tile) {
  return tile.teams == 4 ? 64 : 72;
}

constexpr int kPixels = 64;  // of a line
constexpr int kSets = 4;     // of a chunk
constexpr int kSlices = 2;   // of a chunk
constexpr int kMostStages = 8;
constexpr int kColumnLine = 128;  // bytes of columns of one channel
constexpr int kSliceBytes = 32;   // of K

// Of numbers of so many bytes. Places: channels of a set, and so numbers in 16 bytes.
CONVT2D_HOST_DEVICE constexpr int places(int bytes) { return 16 / bytes; }
// A line with the pixels that are there for shifts: 8 banks more than a multiple of 32, so that lanes of four sets, which fetch eight
// neighbouring words each, meet no bank twice.
CONVT2D_HOST_DEVICE constexpr int line_bytes(int bytes) { return bytes == 2 ? 160 : 288; }
CONVT2D_HOST_DEVICE constexpr int place_bytes(int bytes) { return kSets * line_bytes(bytes); }
CONVT2D_HOST_DEVICE constexpr int stage_bytes(int bytes) {
  return places(bytes) * place_bytes(bytes);
}
// Of an odd one lanes fetch the word behind, too.
CONVT2D_HOST_DEVICE constexpr int most_shift(int bytes) {
  return line_bytes(bytes) / bytes - kPixels - (bytes == 2 ? 1 : 0);
}
CONVT2D_HOST_DEVICE constexpr int weight_lines(Tile tile, int bytes) {
  return tile.width * bytes / kColumnLine;
}

// Everything a block needs, passed by value. 32-bit element offsets: larger tensors are declined.
struct Params {
  void* y;
  const void* bias;
  int32_t batch, groups, reduce, columns;  // the latter two: channels of a group
  int32_t kernel_h, kernel_w, x_w, plane;  // the latter: pixels of one of x
  int32_t plane_rest;                      // of these, behind the last whole 16 bytes
  int32_t box_places;                      // of a box of x
  int32_t chunks, stages;
  int32_t lines;  // of a plane
  int32_t column_blocks, walkers;
  int32_t weights_at, stages_at, shared_bytes;
  FastDivide by_lines, by_row;  // of lines, of pixels
};

struct Maps {
  CUtensorMap x, w;
};

// Where a box starts, from a line's first pixel, and so the shift of a place.
CONVT2D_HOST_DEVICE int box_start(const Params& p, int box, int bytes) {
  return box * p.box_places * p.plane_rest & -places(bytes);
}
CONVT2D_HOST_DEVICE int shift(const Params& p, int place, int bytes) {
  return place * p.plane_rest - box_start(p, place / p.box_places, bytes);
}
CONVT2D_HOST_DEVICE int taps(const Params& p) { return p.kernel_h * p.kernel_w; }
CONVT2D_HOST_DEVICE int weight_bytes(const Params& p, Tile tile) {
  return p.chunks * kSlices * tile.width * kSliceBytes;
}

// Shared memory: the teams' rings of barriers, that of the weights, what outputs a block's columns are, and what has its place in
// Params.
constexpr int kRingBytes = 16 * kMostStages, kArrivedAt = 4 * kRingBytes, kOutputsAt = 1024;
constexpr int kOutputBytes = 8;  // of a pair of columns
constexpr int kHeader = kOutputsAt + 256 / 2 * kOutputBytes;
static_assert(kArrivedAt + 8 <= kOutputsAt);

}  // namespace convt2d::cuda::tuft
