// plain: what one block computes, and the numbers it is told.
//
// Under a kernel of one tap and stride 1 a plane is a row of a matrix, and nothing is gathered. With r for a channel of the
// result and c for one that is summed,
//
//   forward, grad_input   result[r, pixel] = sum over c of w(r, c) * source[c, pixel]
//   grad_weight           dW[ci, co] = sum over images and pixels of x[ci, pixel] * dY[co, pixel]
//
// The copy engine brings boxes of 64 channels x 64 pixels, or of weights, 128 swizzled bytes a row, which wgmma takes as they
// are: pixels are neighbours along N in the first case (turned) and along K in the second, weights along M in forward (turned)
// and along K in grad_input. What a box has beyond a group's channels or a plane's pixels is zero on both sides of a product,
// or belongs to a result that does not exist: no number that exists is multiplied by it.
//
// The first kernel's two warpgroups take tiles of pixels in turn, so that one multiplies while the other one stores. The
// second kernel's share out the block's input channels, or, where there are few, the chunks of pixels, and add up.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "core/types.h"
#include "cuda/device/index.cuh"

namespace convt2d::cuda::plain {

constexpr int kGroups = 2, kConsumers = 128 * kGroups, kThreads = kConsumers + 128;
constexpr int kConsumerRegisters = 232, kProducerRegisters = 40;
constexpr int kBox = 64;         // channels, or pixels, of a box
constexpr int kLine = 2 * kBox;  // bytes of its rows
constexpr int kBoxBytes = kBox * kLine;
constexpr int kSlice = 16;  // of K, an instruction's
constexpr int kMostStages = 12;

// Forward and grad_input: blocks of 64 channels of the result, and pixels, of a warpgroup.
struct Tile {
  int row_blocks, width;
};
constexpr Tile kTiles[] = {{2, 128}, {1, 256}};
constexpr int kTileCount = sizeof(kTiles) / sizeof(kTiles[0]);
// grad_weight: output channels of a block.
constexpr int kWeightWidths[] = {128, 256};
constexpr int kWeightTileCount = sizeof(kWeightWidths) / sizeof(kWeightWidths[0]);

CONVT2D_HOST_DEVICE constexpr int tile_rows(Tile tile) { return tile.row_blocks * kBox; }
// Where a warp lays out 16 channels of a result.
CONVT2D_HOST_DEVICE constexpr int laid_bytes(Tile tile) { return 16 * tile.width * 2; }

// Everything a block needs beside the maps, by value. 32-bit element offsets: larger tensors are declined.
struct Params {
  void* destination;
  const void* bias;
  int32_t groups, rows, reduce;  // channels of a group: of the result, and those that are summed
  int32_t pixels;                // of a plane
  int32_t row_tiles;
  int32_t tiles, walkers;  // of pixels of all images; blocks that share them
  int32_t chunks, stages;  // of each warpgroup
  int32_t resident;        // the weights come once and stay
  int32_t stages_at, laid_at, shared_bytes;
  FastDivide by_image;  // tiles of an image
};
CONVT2D_HOST_DEVICE int source_bytes(Tile tile) { return tile.width / kBox * kBoxBytes; }
CONVT2D_HOST_DEVICE int chunk_weights(Tile tile) { return tile.row_blocks * kBoxBytes; }  // bytes
CONVT2D_HOST_DEVICE int stage_bytes(const Params& p, Tile tile) {
  return source_bytes(tile) + (p.resident ? 0 : chunk_weights(tile));
}

struct WeightParams {
  void* weight;
  float* partials;  // else [piece][ci][co]
  int32_t piece_floats;
  int32_t groups, rows, columns;  // input and output channels of a group
  int32_t row_tiles, column_tiles;
  int32_t apart;  // both warpgroups have the same rows, and every second chunk
  int32_t chunks, split;
  int32_t stages;       // an even number: each is of one warpgroup's chunks where these are apart
  FastDivide by_image;  // chunks of an image
};
CONVT2D_HOST_DEVICE int block_rows(const WeightParams& p) {
  return p.apart ? kBox : kGroups * kBox;
}
CONVT2D_HOST_DEVICE int stage_bytes(const WeightParams& p, int width) {
  return (block_rows(p) + width) * kLine;
}

// Shared memory: barriers of stages, full and empty; of resident weights; and what has its place in Params.
constexpr int kWeightsBarrierAt = 16 * kMostStages, kHeader = 1024;
static_assert(kWeightsBarrierAt + 8 <= kHeader);

// Boxes of what is read: weights and the source, or x and dY.
struct Maps {
  CUtensorMap first, second;
};

}  // namespace convt2d::cuda::plain
