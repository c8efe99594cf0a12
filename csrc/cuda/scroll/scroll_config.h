// scroll: what one block computes, and the numbers it is told.
//
// Where channels are few, an implicit GEMM reads each pixel from shared memory once for every tap, for 32 or 64 columns that
// take no longer than reading it. Here rows of the GEMM are 64 pixels of a row of x, and its columns (row of y, channel) of
// all rows of y that the row of x adds to: one for each kernel row, so a pixel is read for kernel columns alone, which are
// addresses. A warpgroup goes down its strip: when a row of x is multiplied, `step` rows of y (as many as the stride) have
// all they will get and are stored, and the others' sums move up. It reads no row twice and waits for no other warpgroup,
// which multiplies while this one stores.
//
//   weights    [chunk of channels][kernel column][column][32, 64 or 128 B of channels], swizzled, resident
//   x          a ring of rows for each warpgroup: [chunk of channels][strip][pixel][32, 64 or 128 B], swizzled, by the copy
//              engine, zeros beside the image; rows above and below it are left out
//
// A strip has 64 positions of an image, or 8 of each of eight images, which fit any width better but are brought with their
// neighbours as often. Positions are outputs of one phase of the columns; each phase has blocks of its own.
//
// A line is a row of x of a strip; all lines of all strips, one strip after the other, are cut into runs of equal length, one
// for each warpgroup with the same phase and channels. Lines above a run add to its rows too and are multiplied again.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "core/types.h"
#include "cuda/device/index.cuh"

namespace convt2d::cuda::scroll {

// Words of planes: their rows are turned (scroll_planes.h), or fetched as they lie; a tile may be of words alone, or of 16
// bits.
enum PlaneWords : int { kTurnedWords, kFetchedWords, kFetchedAlone, kHalvesAlone };

struct Tile {
  int rows;   // of y that a row of x adds to: of the kernel
  int step;   // that are complete then: the stride
  int width;  // channels
  int groups;  // warpgroups that multiply, at most: fewer where shared memory has no room for their rows
  int phases = 0;  // of columns together, where tensors are planes (scroll_planes.h); else 0
  PlaneWords words = kTurnedWords;
};
constexpr Tile kTiles[] = {{3, 1, 32, 4},
                           {3, 1, 64, 3},
                           {5, 1, 32, 3},
                           {5, 1, 48, 2},
                           {7, 1, 16, 4},
                           {3, 2, 64, 3},
                           {4, 2, 32, 4},
                           {4, 2, 64, 2},
                           {3, 1, 32, 4, 1},
                           {3, 1, 64, 2, 1, kFetchedWords},
                           {5, 1, 32, 3, 1},
                           {7, 1, 16, 4, 1},
                           {3, 2, 16, 4, 2, kFetchedWords},
                           {4, 2, 16, 4, 2, kHalvesAlone},
                           {3, 1, 32, 4, 1, kFetchedAlone},
                           {4, 2, 32, 2, 2, kFetchedAlone}};
constexpr int kTileCount = sizeof(kTiles) / sizeof(kTiles[0]);

CONVT2D_HOST_DEVICE constexpr int columns_of(Tile tile) { return tile.rows * tile.width; }
// Of the last warpgroup a thread asks the copy engine for each of the others.
CONVT2D_HOST_DEVICE constexpr int threads(int groups) { return 128 * groups + 128; }
// Of a thread; together no more than the block starts with, a multiple of 8 for each thread: else who wants more waits for
// ever.
constexpr int kProducerRegisters = 40;
CONVT2D_HOST_DEVICE constexpr int consumer_registers(Tile tile) {
  return tile.groups == 2 ? 216 : tile.groups == 3 ? 152 : 104;
}
CONVT2D_HOST_DEVICE constexpr bool have_enough(Tile tile) {
  const int of_thread = 65536 / threads(tile.groups) / 8 * 8;
  return 128 * (tile.groups * consumer_registers(tile) + kProducerRegisters) <=
         threads(tile.groups) * of_thread;
}
static_assert(have_enough(kTiles[0]) && have_enough(kTiles[1]) && have_enough(kTiles[3]));
// Rows of x above that add to a row of y.
CONVT2D_HOST_DEVICE constexpr int reach_of(Tile tile) { return (tile.rows - 1) / tile.step; }

constexpr int kPositions = 64;   // of an instruction
constexpr int kSliceBytes = 32;  // of channels of an instruction
constexpr int kEight = 8;        // images of narrow strips, and their positions
constexpr int kMostStages = 8, kMostPhases = 2, kMostGroups = 4;

// Kernel columns that a phase of the columns has: from which to which, and how many pixels further the next one reads.
struct Taps {
  int32_t count;
  int32_t low;  // the first pixel of a strip, which the first one reads, from its first position
  int32_t shift;
  int32_t tap, tap_step;
};

// Which channels of the weights are contiguous, in whole vectors: none, y's, or x's.
enum WeightMode : int32_t { kAnyStrides, kColumnVectors, kDepthVectors };

// Everything a block needs, passed by value. 32-bit element offsets: larger tensors are declined.
struct Params {
  void* destination;
  const void* bias;
  const void* weight;
  const void* source;
  int32_t weight_group, weight_reduce, weight_column, weight_h, weight_w;
  WeightMode weight_mode;
  int32_t batch, groups, reduce, columns;
  int32_t x_h, x_w, y_h, y_w;
  int32_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
  int32_t number_bytes;
  int32_t column_tiles;
  int32_t warpgroups;            // that multiply
  int32_t eights;                // strips of eight images
  int32_t pixels;                // of a strip, with its neighbours
  int32_t line, slices, chunks;  // bytes of a pixel in a chunk, slices of those; chunks
  int32_t strips_w;              // strips beside each other
  int32_t first_row, steps;      // lines of a strip
  int32_t lines;                 // of all strips
  int32_t walkers[kMostPhases];  // blocks with the same phase and channels
  int32_t stages, chunk_bytes, stage_bytes;
  int32_t weights_at, stages_at, shared_bytes;
  int32_t vectors, vector_bits;  // 16 bytes of channels; 1 << vector_bits of them are a chunk's
  FastDivide by_steps, by_strips, by_vectors;
  Taps taps[kMostPhases];
};

// Barriers, and the bias.
constexpr int kBiasAt = kMostGroups * kMostStages * 16, kHeader = kBiasAt + 64 * 4;

}  // namespace convt2d::cuda::scroll
