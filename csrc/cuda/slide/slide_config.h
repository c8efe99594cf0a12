// slide: what one block computes, and the numbers it is told.
//
// A GEMM whose operands stay as they lie, for kernels whose rows are short. Positions of the destination, T, are the
// outputs t = T * stride to T * stride + stride - 1 of a row, counted from before its padding, so that
//
//   output[T * stride + e] = sum over j of P[e + stride * j][T - j]
//   P[kw][pixel] = sum over ci, kh of w[ci][co][kh][kw] * x[ci][row of kh][pixel]
//
// Rows of the source are whole multiples of 16 bytes, so another kh is another address; another kw would be a shift by one
// pixel, which neither the tensor core nor the copy engine can do. Hence every kw has sums of its own, which slide over
// each other afterwards, from thread to thread (slide_store.cuh): a pixel of shift is one shuffle.
//
//   weights    [kh][16 channels][8 of them][row][16 B], resident; a row is an (output channel, kw)
//   x          [box of pixels][row][channel][32, 64 or 128 B], swizzled: one stage, all channels
//   staging    outputs of a warp: [run][8 channels][outputs as they will lie in memory]
//
// A block walks items: some rows of an image, from left to right, a tile at a time. Sums that slide out of a tile
// (`carried`) wait for the next one. A tile is `width` positions of each of the two warpgroups that multiply: `run` of
// each of width / run rows.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "core/types.h"

namespace convt2d::cuda::slide {

// Sums of a thread: 2 * blocks rows of width / 4.
struct Tile {
  int kernel, stride;  // along a row
  bool halved;         // 32 output channels instead of 64
  int width;
};
constexpr Tile kTiles[] = {
    {3, 1, false, 128}, {3, 1, true, 128}, {3, 2, true, 128}, {4, 2, true, 128},
    {5, 1, false, 64},  {5, 1, true, 64},  {7, 1, true, 64},
};
constexpr int kTileCount = sizeof(kTiles) / sizeof(kTiles[0]);

constexpr int kRows = 64;  // of an instruction
CONVT2D_HOST_DEVICE constexpr int channels(Tile tile) { return tile.halved ? 32 : 64; }
// Of 64 rows.
CONVT2D_HOST_DEVICE constexpr int blocks(Tile tile) {
  return tile.halved ? (tile.kernel + 1) / 2 : tile.kernel;
}
// Output channels of a thread.
CONVT2D_HOST_DEVICE constexpr int thread_channels(Tile tile) { return channels(tile) / 32; }
// Sums of a channel that slide on to the next tile.
CONVT2D_HOST_DEVICE constexpr int carried(Tile tile) { return tile.kernel - tile.stride; }

// Two warpgroups multiply; of the third, one thread asks the copy engine.
constexpr int kGroups = 2, kConsumers = 128 * kGroups, kThreads = kConsumers + 128;
constexpr int kConsumerRegisters = 232, kProducerRegisters = 40;
// Of one sum of every fourth thread.
constexpr int kWaitingBytes = kConsumers / 4 * 4;

constexpr int kMostStages = 8;
constexpr int kMostTaps = 16;     // of a column of a kernel
constexpr int kMostPhases = 8;    // output rows of a position
constexpr int kSlice = 16;        // input channels of an instruction
constexpr int kVector = 8;        // numbers in 16 bytes
constexpr int kWarpChannels = 8;  // of a warp's staging
constexpr int kBeyond = 8;        // positions behind a row's last pixel
constexpr int kLeastRun = 32, kMostBox = 64;

// Everything a block needs, passed by value. 32-bit element offsets: larger tensors are declined.
struct Params {
  void* destination;
  const void* bias;
  const void* weight;
  const void* source;
  int32_t weight_group, weight_reduce, weight_column, weight_h, weight_w;  // strides
  int32_t batch, groups, reduce, columns;                                  // channels of one group
  int32_t x_h, x_w, y_h, y_w;
  int32_t kernel_h, stride_h, pad_h, pad_w;
  // Kernel rows by which of the output rows of a position they add to: the first of each in `tap`; and of each kernel row,
  // how many rows of x above the position it finds its pixel.
  int8_t first_tap[kMostPhases + 1], tap[kMostTaps], tap_shift[kMostTaps];
  int32_t reach;                  // the most of them
  int32_t slices, reduce_padded;  // of input channels; so many channels
  int32_t column_tiles;           // of output channels
  int32_t run, run_shift;         // positions of a row, and log2
  int32_t box;                    // pixels that the copy engine brings together
  int32_t tile_rows;              // width / run
  int32_t turns;                  // tiles of a warpgroup below each other that a stage serves
  int32_t patch_rows;
  int32_t first_row, end_row;    // of positions
  int32_t item_rows, row_items;  // positions of an item; items of an image
  int32_t sweeps;                // tiles side by side
  int32_t items, walkers;
  int32_t stages, stage_bytes, box_bytes;
  int32_t staging_pitch;  // bytes of a run of a channel
  int32_t weights_at, stages_at, staging_at, carried_at, shared_bytes;
};

CONVT2D_HOST_DEVICE int slice_bytes(Tile tile) {  // of weights
  return 2 * blocks(tile) * kRows * 16;
}
CONVT2D_HOST_DEVICE int staging_bytes(const Params& p) {  // of a warp
  return p.tile_rows * kWarpChannels * p.staging_pitch;
}

constexpr int kBiasAt = kMostStages * 16, kHeader = kBiasAt + 64 * 4;

}  // namespace convt2d::cuda::slide
