// fan: what one block computes, and the numbers it is told.
//
// An implicit GEMM whose rows are positions (core/phases.h) and whose columns are channels of all phases that lie side
// by side in a row of the result, and of several rows where there is room: four phases of 32 channels, two of 64, or one
// of 128, or of 64 or 32 for two or four times as many positions. In NCHW neither operand lies along K. So warps that
// multiply fetch pixels to registers, from rows of x as the copy engine brings them; a pixel goes out to every phase
// that reads it:
//
//   sums[position][(phase, co)] += x[position + offset][ci] * w[ci][co][tap(phase, offset)]     for each offset
//
// An offset is a step: one fetch, and an instruction for each of the phases that have a tap there.
//
//   x          a ring of patches  [image][row][channel of the chunk][pixel]; from channel to channel are 8 or 24 words but
//              for multiples of 32, so that lanes that fetch four channels of eight pixels meet no bank twice
//   weights    a ring, as they lie  [eight channels out][channel in][channel out, tap]
//   turned     a ring, or all of them  [slice][step and phase][eight channels out][half][channel out][16 B of channels in]
//
// Of the last warpgroup, one thread asks the copy engine for both, and three warps turn weights.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "core/types.h"
#include "cuda/gather_axes.h"

namespace convt2d::cuda::fan {

constexpr int kGroups = 4, kConsumers = 128 * kGroups, kThreads = kConsumers + 128;
constexpr int kConsumerRegisters = 104, kProducerRegisters = 64;
constexpr int kTurners = 3;  // warps

constexpr int kRows = 64;                // of an instruction
constexpr int kSums = 128;               // of a row of a group, for all its operands
constexpr int kSlice = 8;                // channels of an instruction
constexpr int kEight = 8;                // channels of a box of weights
constexpr int kMostTaps = 256 / kEight;  // of a kernel: a box has 256 of what lies side by side
constexpr int kMostGroups = 4;           // of phases, by their rows
constexpr int kMostSteps = 48;           // of all of them
constexpr int kMostStages = 64;          // of turned weights
constexpr int kMostRing = 8;             // stages of x, or of weights as they lie
constexpr int kMostSlices = 4;           // of a chunk

// What a block computes: rows x columns of phases of the result; for so many times 64 positions of each group.
struct Tile {
  int h, w, operands;
};
constexpr Tile kTiles[] = {{1, 1, 4}, {1, 1, 2}, {1, 1, 1}, {1, 2, 1},
                           {1, 4, 1}, {2, 1, 1}, {2, 2, 1}, {4, 1, 1}};
constexpr int kMostOperands = 4;
constexpr int kTileCount = sizeof(kTiles) / sizeof(kTiles[0]);

CONVT2D_HOST_DEVICE constexpr int phases(Tile tile) { return tile.h * tile.w; }
CONVT2D_HOST_DEVICE constexpr int channels(Tile tile) {
  return kSums / (phases(tile) * tile.operands);
}
CONVT2D_HOST_DEVICE constexpr int positions(Tile tile) { return kRows * kGroups * tile.operands; }
// Of the turned weights of a tap, a slice.
CONVT2D_HOST_DEVICE constexpr int tap_bytes(int channels) { return channels * kSlice * 4; }

// A source offset: where its pixels are, in bytes from a position's; where its first weights are, in units of 16 bytes
// from those of the slice, and above that, a bit each, of which phases they are, so many taps one after the other.
struct Step {
  uint32_t pixel, weights;
};
constexpr int kPhasesShift = 16;

// Everything a block needs, passed by value. 32-bit element offsets: larger tensors are declined.
struct GatherParams {
  const void* source;
  const void* weight;
  const void* bias;  // or null
  void* destination;
  int32_t source_stride[4], destination_stride[4];                         // n, c, h, w
  int32_t weight_group, weight_reduce, weight_column, weight_h, weight_w;  // strides
  int32_t batch, groups, reduce, columns;                                  // channels a group
  AxisTable h, w;
  int32_t tile_n, tile_h, tile_w;     // positions of a tile
  int32_t tiles_n, tiles_h, tiles_w;  // tiles of the position grid
  int32_t tile_channels, column_tiles;
  // Blocks for each combination of group and column tile, by the group of phases.
  int32_t walkers[kMostGroups];
  int32_t taps, taps_h;    // of a kernel; rows of them
  int32_t slices, chunks;  // of a chunk; chunks of K
  int32_t first_step[kMostGroups + 1];
  int32_t group_taps[kMostGroups];       // that phases of a group have
  int8_t place[kMostGroups][kMostTaps];  // of a tap among the turned ones; -1: of other phases
  Step step[kMostSteps];
  int32_t load_h, copied_w;                            // rows of a patch, pixels of one
  int32_t channel_pitch, row_pitch, image_pitch, far;  // bytes; four channels are `far`
  int32_t x_stages, x_bytes;
  int32_t raw_stages, raw_bytes, box_bytes;          // box_bytes: of eight channels
  int32_t turned_stages, turned_bytes, slice_bytes;  // resident: a stage for every chunk
  int32_t resident;
  int32_t raw_at, turned_at, x_at, shared_bytes;
};

// What the copy engine is told.
struct TensorMaps {
  CUtensorMap source, weight;
};
static_assert(sizeof(GatherParams) + sizeof(TensorMaps) <= 4096 - 64);

// In front: barriers of the stages of x, of weights, of turned ones; places of the taps; biases of the columns; the scope
// of the block; the positions of a tile.
constexpr int kXBarriers = 0, kRawBarriers = kXBarriers + kMostRing * 16,
              kTurnedBarriers = kRawBarriers + kMostRing * 16,
              kPlaces = kTurnedBarriers + kMostStages * 16, kBiases = kPlaces + kMostTaps * 4,
              kScope = kBiases + kSums * 4, kPositions = kScope + 16,
              kHeader = kPositions + kRows * kGroups * kMostOperands * 4;

}  // namespace convt2d::cuda::fan
