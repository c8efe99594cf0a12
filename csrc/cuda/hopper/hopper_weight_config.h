// hopper, grad_weight of 16-bit channels-last tensors: what one block computes, and the numbers it is told.
//
//   dW[ci, co, tap] = sum over pixels of x[ci, pixel] * dY[co, pixel * stride - near_pad + tap * d]
//
// As a GEMM: rows M = input channels, columns N = (tap, output channel), reduction K = the pixels of x. One warp asks
// the copy engine for K tiles of 64 pixels, warpgroups multiply them (wgmma) out of shared memory:
//
//   x    [block of 64 channels][pixel][128 B]
//   dY   [plane][block of 64 channels][patch pixel][128 B]
//
// both swizzled and both turned by the tensor core, since K, the pixels, is what lies apart. A plane is dY at every
// stride-th pixel, so that neighbours in it meet neighbouring pixels of x. Every tap has a plane of its own, the size of
// the tile; or the taps whose planes differ by whole pixels share one, which has a border then, and a tap is a
// shift by whole rows of 128 bytes (the swizzle goes by the address). Planes of their own cost more copying, but any
// tile of up to 64 pixels will do; a shared plane wants 64 in rows of 16.
//
// Where input channels are no whole 16 bytes, of which the copy engine's strides are, three warps bring x, four or eight
// bytes at a time (`x_piece`).
//
// A block computes 64 x_blocks rows and, for each, unit_taps x y_blocks cells of 64 columns. An instruction takes
// `width` columns, cells that lie at equal distances in shared memory.
//
// Blocks that share dW but not the pixels write partial sums; a second pass adds them in a fixed order (weight_sum.h).
#pragma once

#include <cuda.h>

#include <cstdint>

#include "core/types.h"

namespace convt2d::cuda::hopper {

constexpr int kTilePixels = 64, kStepPixels = 16, kTileSteps = kTilePixels / kStepPixels;
constexpr int kCellChannels = 64, kRowBytes = 128, kRowGroup = 8;  // rows until the swizzle repeats
constexpr int kMostTaps = 128, kMostTileStages = 8;

// Warpgroups that multiply, `instructions` each for every 16 pixels. Sums of a thread: width / 2 * instructions.
struct WeightTile {
  int width, instructions, groups;
};
constexpr WeightTile kWeightTiles[] = {
    {256, 1, 2},  // many channels: four cells at equal distances
    {128, 2, 2},  // two cells: any
    {192, 1, 3},  // three taps in a row, or 192 channels
    {64, 3, 3},   // nine taps anywhere
    {128, 1, 2},  // two cells, where there is little to do for a block, or few of them
};
constexpr int kWeightTileCount = sizeof(kWeightTiles) / sizeof(kWeightTiles[0]);

CONVT2D_HOST_DEVICE constexpr int weight_consumers(WeightTile tile) { return 128 * tile.groups; }
CONVT2D_HOST_DEVICE constexpr int weight_threads(WeightTile tile) {
  return weight_consumers(tile) + 128;
}
// Of a thread; together no more than the block starts with.
CONVT2D_HOST_DEVICE constexpr int weight_consumer_registers(WeightTile tile) {
  return tile.groups == 2 ? 224 : 152;
}
constexpr int kWeightProducerRegisters = 56, kWeightBringers = 96;

// One tap, in the order in which blocks take them.
struct WeightTap {
  int16_t kernel_h, kernel_w;
  int16_t h, w;   // where its plane starts, from `stride` times the tile's first pixel
  int16_t plane;  // of its block
  int16_t shift;  // pixels of the plane
};

// Everything a block needs, passed by value. 32-bit element offsets: larger tensors are declined.
struct WeightParams {
  void* weight;     // written when there is one piece
  float* partials;  // else [pieces][kh][kw][ci][co]
  int32_t piece_floats;
  int32_t weight_stride[4];
  int32_t weight_quads;                  // four output channels are eight aligned bytes
  int32_t batch, groups, rows, columns;  // channels of one group: rows of x, columns of dY
  int32_t x_h, x_w, y_h, y_w;            // extents
  int32_t x_pitch, y_pitch;              // numbers of a pixel, and what is beside them
  int32_t stride_h, stride_w;
  int32_t kernel_w, taps;
  int32_t x_blocks, y_blocks, unit_taps;     // of a block
  int32_t row_blocks, column_blocks, units;  // blocks side by side
  int32_t tile_n, tile_h, tile_w;            // pixels of a K tile that are used
  int32_t tiles_n, tiles_h, tiles_w;
  int32_t patch_h, patch_w;  // of a plane
  int32_t plane_bytes;       // of one block of channels, in whole groups of rows
  int32_t planes;            // that a stage has room for
  int32_t step[kTileSteps];  // a step's first row in a plane, in 16 bytes
  const void* x;             // of threads that bring
  int32_t x_piece;           // bytes at once; 0: the copy engine
  int32_t stages, split;
  WeightTap tap[kMostTaps];
};

// What the copy engine is told.
struct WeightMaps {
  CUtensorMap x, y;
};

CONVT2D_HOST_DEVICE int tile_pixels(const WeightParams& p) {
  return p.tile_n * p.tile_h * p.tile_w;
}
CONVT2D_HOST_DEVICE int patch_pixels(const WeightParams& p) {
  return p.tile_n * p.patch_h * p.patch_w;
}
CONVT2D_HOST_DEVICE int weight_stage_bytes(const WeightParams& p) {
  return p.x_blocks * kTilePixels * kRowBytes + p.planes * p.y_blocks * p.plane_bytes;
}

// Sums on their way out, a tile of 64 rows a warpgroup; 32 bytes over a multiple of 128 let the fragments of a warp
// meet every bank once.
CONVT2D_HOST_DEVICE constexpr int sum_columns(WeightTile tile) {
  return tile.width * tile.instructions;
}
CONVT2D_HOST_DEVICE constexpr int sum_pitch(WeightTile tile) { return sum_columns(tile) * 4 + 32; }
CONVT2D_HOST_DEVICE constexpr int sum_bytes(WeightTile tile) {
  return kCellChannels * sum_pitch(tile);
}

// Shared memory: barriers, what the instructions are about, then the stages, and in their place the sums.
constexpr int kCellsAt = 16 * kMostTileStages, kStagesAt = 1024;
constexpr int kPixelsAt =
    kStagesAt - kTilePixels * 8;  // where a tile's pixels are, for threads that bring
// What an instruction would read behind its last rows if its cells lay one after the other: memcheck wants that.
constexpr int kReach = 6 << 10;
CONVT2D_HOST_DEVICE int weight_shared_bytes(const WeightParams& p, WeightTile tile) {
  const int stages = p.stages * weight_stage_bytes(p) + kReach,
            sums = tile.groups * sum_bytes(tile);
  return kStagesAt + (stages > sums ? stages : sums);
}

// The cells of one instruction of a block whose taps start at `first`: which rows and which columns, and where the
// columns lie from a stage's first plane on.
struct WeightCells {
  int x_block, tap, y_block;  // of the first; tap counts from the block's first
  int at, apart;              // bytes
};
constexpr int kMostInstructions = 9;
static_assert(kCellsAt + kMostInstructions * sizeof(WeightCells) <= kPixelsAt);

CONVT2D_HOST_DEVICE int cells_of_block(const WeightParams& p) { return p.unit_taps * p.y_blocks; }
// Cell number `cell` of an x block. What lies beyond the last tap is read where that lies, and not stored.
CONVT2D_HOST_DEVICE int cell_address(const WeightParams& p, int first, int cell) {
  const int tap = first + cell / p.y_blocks, last = p.taps - 1;
  const WeightTap& of = p.tap[tap < last ? tap : last];
  return (of.plane * p.y_blocks + cell % p.y_blocks) * p.plane_bytes + of.shift * kRowBytes;
}
CONVT2D_HOST_DEVICE WeightCells cells_of(const WeightParams& p, WeightTile tile, int first,
                                         int instruction) {
  const int cells = tile.width / kCellChannels, each = cells_of_block(p) / cells;
  const int cell = instruction % each * cells;
  const int at = cell_address(p, first, cell);
  const int next = cells > 1 ? cell_address(p, first, cell + 1) : at;
  return {instruction / each, cell / p.y_blocks, cell % p.y_blocks, at, next - at};
}

}  // namespace convt2d::cuda::hopper
