// gauze: forward, NCHW, of kernels of 3 x 3 and 4 x 4 with stride 2 and padding 1, whose y has twice the columns of x; few input
// channels.
//
//   y[n][co][2 i + a][2 j + b] = bias[co] + sum over ci and the taps of phase (a, b)
//                                of x[n][ci][i + dh][j + dw] * w[ci][co][a + 1 - 2 dh][b + 1 - 2 dw]
//
// A GEMM whose rows are pixels, out of registers, so that any shift (dh, dw) of them is another address of x. Columns are (phase,
// output channel), each phase with sums of its own, and the tensor core adds up all taps. A lane has two neighbouring pixels, thus
// four neighbours of a row of y, and stores them straight from its registers. Nobody turns, shifts, exchanges or adds.
//
//   x        [row][channel in][pitch]   a stage: a chunk of channels of a tile's rows and those around them, as the copy engine
//            brings them, with zeros beside the image. A pair of neighbouring pixels is what a lane fetches, and the pairs on both
//            sides of it: these have the pixels of all shifts along a row. Lanes t of four have neighbouring channels, lanes g of
//            eight neighbouring pairs: a pitch of an odd number of 32 bytes makes them meet no bank twice
//   weights  [slice of K][half][tap][channel out][16 B]   all of them stay; written once, in the order of K that lanes fetch
//
// A tile is a strip of 16, 32 or 64 columns; each warpgroup that multiplies has 64 of its pixels, the rows below those of the one
// before. All have the same channels out.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "core/types.h"
#include "cuda/device/index.cuh"

namespace convt2d::cuda::gauze {

constexpr int kStride = 2, kPad = 1, kPhases = kStride * kStride;

// By a Plan's row.
struct Tile {
  int kernel, channels, teams;  // channels out; warpgroups that multiply
};
constexpr Tile kTiles[] = {{4, 32, 2}, {4, 16, 4}, {3, 64, 2}, {3, 32, 2}, {3, 16, 4}, {4, 64, 2}};
constexpr int kTileCount = sizeof(kTiles) / sizeof(kTiles[0]);
// Weights of 4 bytes have no room for the last one but of layers that others serve.
constexpr int kWordTiles = 5;
CONVT2D_HOST_DEVICE constexpr int tiles_of(int size) { return size == 4 ? kWordTiles : kTileCount; }

CONVT2D_HOST_DEVICE constexpr int taps(Tile tile) { return tile.kernel * tile.kernel; }
CONVT2D_HOST_DEVICE constexpr int consumers(Tile tile) { return 128 * tile.teams; }
CONVT2D_HOST_DEVICE constexpr int threads(Tile tile) { return consumers(tile) + 128; }
// Of a thread. A launch has what the compiler gave all threads, 168 each of 384 or 96 of 640; who asks for more waits forever.
CONVT2D_HOST_DEVICE constexpr int consumer_registers(Tile tile) {
  return tile.teams == 2 ? 240 : 112;
}
CONVT2D_HOST_DEVICE constexpr int producer_registers(Tile tile) {
  return tile.teams == 2 ? 24 : 32;
}

// Along an axis, a phase reads pixels shifted by -1, 0 or 1, kernels of three none by -1.
CONVT2D_HOST_DEVICE constexpr int first_shift(int kernel) { return kernel == 4 ? -1 : 0; }
CONVT2D_HOST_DEVICE constexpr int shifts(int kernel) { return 2 - first_shift(kernel); }
// The tap of a phase for a shift; beside the kernel there is none.
CONVT2D_HOST_DEVICE constexpr int tap_of(int phase, int shift) {
  return phase + kPad - kStride * shift;
}

constexpr int kTeamPixels = 64, kWarpPixels = 16;
constexpr int kSlices = 2;  // of K in a chunk
CONVT2D_HOST_DEVICE constexpr int slice_channels(int size) { return 32 / size; }
CONVT2D_HOST_DEVICE constexpr int depth(int size) { return kSlices * slice_channels(size); }
// Bytes of weights: of a half of a slice, of a slice.
CONVT2D_HOST_DEVICE constexpr int half_bytes(Tile tile) { return taps(tile) * tile.channels * 16; }
CONVT2D_HOST_DEVICE constexpr int slice_bytes(Tile tile) { return 2 * half_bytes(tile); }
constexpr int kMostStages = 8;

// Everything a block needs, passed by value. 32-bit element offsets: larger tensors are declined.
struct Params {
  void* y;
  const void *x, *w;                       // the former for repairs
  const void* bias;                        // or null
  int32_t batch, groups, reduce, columns;  // the latter two: channels of a group
  int32_t x_h, x_w, y_h, y_w;
  int32_t width, team_rows, rows;  // of a tile: columns, rows of a warpgroup, and of all
  int32_t items, walkers;          // the latter: blocks
  int32_t chunks, stages, stage_bytes;
  int32_t lead;              // pixels of a stage's row before those of the strip
  int32_t pitch, row_bytes;  // of a stage: bytes from channel to channel, from row to row
  int32_t stages_at, shared_bytes;
  FastDivide by_blocks, by_groups, by_strips, by_bands;  // of items
};

struct Maps {
  CUtensorMap x;
};

// Shared memory: the stages' barriers, biases, weights, stages.
constexpr int kBiasAt = kMostStages * 16, kWeightsAt = 1024;
static_assert(kBiasAt + 64 * 4 <= kWeightsAt);

}  // namespace convt2d::cuda::gauze
