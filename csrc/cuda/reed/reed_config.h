// reed: forward with all phases of the stride as rows of one GEMM.
//
//   y[co, q * s + a] = sum over ci and j of w[ci, co, a + j * s] * x[ci, q - j]      (both axes)
//
// As a GEMM: rows M = (output channel, phase), columns N = positions q of all images, one behind the other, reduction
// K = (input channel, j). Of an input channel and a j, the phases of a row of the stride are neighbours in w, and so are
// outputs in y: rows of M are in the order of both. Channels last, the row of a phase is (column phase, output channel),
// which is the same thing with one channel and rows as many times longer: `unit` is what a position adds to a row of y,
// in numbers. Where x is one pixel and y what one kernel writes, all rows are such a row in NCHW too.
//
//   w    [K][row]       copied as they lie (cp.async), 16, 8 or 4 bytes at once
//   x    [position][K]  a chunk of channels of one j; what lies outside of x becomes zeros
//
// Both as mma.sync wants them: x by ldmatrix, w of 16 bits by ldmatrix.trans; of words a thread loads two rows at once,
// which are rows g and g + 8 of an instruction. Sums go to memory by way of shared memory, [position][row].
#pragma once

#include <cstdint>

#include "core/types.h"
#include "cuda/device/index.cuh"

namespace convt2d::cuda::reed {

// Rows and positions of a block, and among how many warps they are shared out.
struct Tile {
  int rows, columns, warps_m, warps_n;
};
constexpr Tile kTiles[] = {{128, 64, 4, 2}, {128, 128, 2, 4}};
constexpr int kTileCount = sizeof(kTiles) / sizeof(kTiles[0]);
// Strict fp32, whose sums leave registers to those of a chunk, has the first of them.
constexpr int kStrictTiles = 1;
CONVT2D_HOST_DEVICE constexpr int tile_count(bool strict) {
  return strict ? kStrictTiles : kTileCount;
}
CONVT2D_HOST_DEVICE constexpr int threads_of(Tile tile) { return tile.warps_m * tile.warps_n * 32; }

// Bytes of K of a chunk, 32 words or 64 numbers of 16 bits; and how many numbers they are.
constexpr int kChunkBytes = 128;
CONVT2D_HOST_DEVICE constexpr int chunk_of(int element_bytes) {
  return kChunkBytes / element_bytes;
}
constexpr int kSteps = kChunkBytes / 32;
constexpr int kMostStages = 4;

// Tiles of 16 rows and of 8 positions of a warp; registers of sums of a thread.
CONVT2D_HOST_DEVICE constexpr int row_tiles(Tile tile) { return tile.rows / tile.warps_m / 16; }
CONVT2D_HOST_DEVICE constexpr int column_tiles(Tile tile) {
  return tile.columns / tile.warps_n / 8;
}
CONVT2D_HOST_DEVICE constexpr int sums(Tile tile) {
  return row_tiles(tile) * column_tiles(tile) * 4;
}
// Blocks of a multiprocessor, by their registers.
CONVT2D_HOST_DEVICE constexpr int side_by_side(Tile tile, bool strict) {
  return threads_of(tile) > 256 || (strict && sums(tile) > 32) ? 1 : 2;
}
// In how many parts numbers of 16 bits come, so that a thread holds few of them.
CONVT2D_HOST_DEVICE constexpr int parts_of(Tile tile) {
  return tile.columns * (kChunkBytes / 16) > threads_of(tile) * 2 ? 2 : 1;
}

// Bytes from one number of K of w, or position of x, to the next, so that neighbours lie in different banks.
CONVT2D_HOST_DEVICE constexpr int w_pitch(Tile tile, int element_bytes) {
  return tile.rows * element_bytes + element_bytes * 8;
}
constexpr int kXPitch = kChunkBytes + 16;
CONVT2D_HOST_DEVICE constexpr int w_bytes(Tile tile, int element_bytes) {
  return chunk_of(element_bytes) * w_pitch(tile, element_bytes);
}
CONVT2D_HOST_DEVICE constexpr int stage_bytes(Tile tile, int element_bytes) {
  return w_bytes(tile, element_bytes) + tile.columns * kXPitch;
}
// In front of the stages: 16 bytes of each position, 16 of each run of rows that is stored at once, a bias of each row.
CONVT2D_HOST_DEVICE constexpr int table_bytes(Tile tile) {
  return tile.columns * 16 + tile.rows * 16 + tile.rows * 4;
}

// How x comes.
enum Way : int32_t {
  kVectors,  // 16 bytes of channels, asynchronously
  kWords,    // words, asynchronously
  kNumbers,  // numbers of 16 bits, through registers
};

struct Params {
  const void *x, *w, *bias;
  void* y;
  int32_t groups;
  int32_t rows, used;        // of a group; of a block
  int32_t terms;             // input channels of a group
  int32_t positions;         // of all images
  int32_t chunks;            // of all j
  int32_t first_h, first_w;  // the first position's q
  int32_t taps_h, taps_w;    // j
  // Numbers from one to the next.
  int32_t x_group, x_image, x_channel, x_row, x_pixel;
  int32_t w_group, w_channel;
  int32_t y_group, y_image, y_plane, y_row;
  int32_t x_h, x_w, y_h, y_w;  // y_w in numbers of a row, as are these:
  int32_t unit, pad_w, kernel_w;
  int32_t stride_h, pad_h, kernel_h;
  int32_t group_out, inner;  // output channels of a group; those of a pixel, or 0 in NCHW
  int32_t
      flat;  // rows of an output channel where all rows are one run of y, of planes of one pixel; or 0
  // The same of weights, whose rows may be joined: a run of `run` neighbours, runs of one channel, a channel's rows.
  int32_t run, runs, run_h, run_w, run_taps;
  int32_t joined;  // whether j of an axis h steps along them
  int32_t
      paired;  // held tiles: whether a chunk has two j of a kernel row, each of half as many channels
  Way way;
  int32_t w_piece;  // bytes of w at once
  int32_t row_blocks, position_blocks, stages;
  int32_t vector, vectors;        // numbers of a row that are stored at once; such of a unit
  int32_t out_pitch;              // floats from one position's sums to the next
  FastDivide by_image, by_width;  // positions
  FastDivide by_unit, by_stride, by_run, by_runs, by_vectors;
};

}  // namespace convt2d::cuda::reed
