// weft: what one block computes, and the numbers it is told.
//
//   dW[ci, co, tap] = sum over pixels of x[ci, pixel] * dY[co, pixel * stride - near_pad + tap * d]
//
// The GEMM is that of hopper's grad_weight of channels-last tensors (hopper_weight_config.h): rows M = input channels,
// columns N = (tap, output channel), K = 64 pixels of x at a time, and both operands in shared memory as rows of 64
// channels, so that a tap is a shift by whole rows:
//
//   x    [block of 64 channels][pixel][128 B]
//   dY   [plane][block of 64 channels][patch pixel][128 B]
//
// Only that x comes from registers, where a thread fetches it (ldmatrix) once for all its instructions; so where rows of x
// are whole vectors, x may lie as in memory too (`direct`), [row of the tile][channel][pixel], swizzled.
//
// In NCHW a channel's pixels are neighbours. The copy engine brings them as they lie: segments, which are lines of a tile's
// patch or, where tiles have whole rows, one run of several rows, from the last multiple of 16 bytes on. Where planes are no
// multiple of those, two, four or eight of them are; these are one row to the copy engine, and a copy brings a segment of
// every second, fourth or eighth channel (`residues`). Four warps turn eight pixels of 32 channels at a time (ldmatrix,
// stmatrix): a pixel goes wherever its row of 128 bytes belongs, which tables tell, so neither strides nor where a segment
// starts among 16 bytes matter. What lies beside the tensors becomes zeros on that way.
//
// Of a plane's rows, `patch_w` lie side by side. Tiles are 64 pixels in rows of 16, 32 or 64; or whole rows of x, which are as
// far apart as dY's then (`tile_w` is `patch_w`), with rows of zeros between them.
//
// Channels of one residue lie together, so rows and columns of the sum go by that order until they leave.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "core/types.h"
#include "cuda/hopper/hopper_weight_config.h"

namespace convt2d::cuda::weft {

using hopper::kCellChannels;
using hopper::kRowBytes;
using hopper::kTilePixels;
using hopper::kTileSteps;
using hopper::WeightTile;

using hopper::kWeightTiles;

// Those of hopper's tiles that are worth having: x comes from registers, so wider instructions read no less.
constexpr int kRows[] = {1, 3};
constexpr int kTileCount = sizeof(kRows) / sizeof(kRows[0]);
CONVT2D_HOST_DEVICE constexpr WeightTile tile_of(int row) { return kWeightTiles[kRows[row]]; }

constexpr int kTurners = 128, kTurnWarps = kTurners / 32;
// Of a thread; together no more than the block starts with.
CONVT2D_HOST_DEVICE constexpr int consumer_registers(WeightTile tile) {
  return tile.groups == 2 ? 208 : 144;
}
CONVT2D_HOST_DEVICE constexpr int turner_registers(WeightTile tile) {
  return tile.groups == 2 ? 88 : 80;
}
// Eights of pixels that a warp turns at once: as registers allow.
CONVT2D_HOST_DEVICE constexpr int turned_at_once(WeightTile tile) {
  return tile.groups == 2 ? 2 : 1;
}
constexpr int kEight = 8;  // pixels that are turned at once, 16 bytes

// An operand on its way to shared memory.
struct Side {
  int32_t segments;  // of a K tile
  int32_t
      octets;  // eights of pixels of a channel's segment; odd, so that eight channels meet all banks
  int32_t step;                  // rows from one segment to the next
  int32_t residues;              // planes that are one row to the copy engine, a power of two
  int32_t plane, width, height;  // pixels of a plane and of its rows; rows
  int32_t blocks;                // of 64 channels
  int32_t block_rows;            // of 128 bytes, from one to the next
  int32_t copies;                // of a segment
  int32_t copy_bytes;            // one of them
  int32_t at;                    // in what the copy engine brings for a K tile
  int32_t table_at;              // in shared memory: [segment][kEight + 8 octets]
};

// An entry of a table: the pixel's row of 128 bytes in a stage, and its row and column from the tile's first ones on.
constexpr uint32_t kNowhere = 0xffffffff;
constexpr int kEntryRow = 12, kEntryColumn = 20;  // bits
CONVT2D_HOST_DEVICE constexpr int table_entries(const Side& side) {
  return side.segments * (side.octets + 1) * kEight;
}
CONVT2D_HOST_DEVICE constexpr int segment_bytes(const Side& side) {
  return side.blocks * kCellChannels * side.octets * 16;
}
CONVT2D_HOST_DEVICE constexpr int side_bytes(const Side& side) {
  return side.segments * segment_bytes(side);
}
// The channel of 64 that is number `place` among them, residue by residue.
CONVT2D_HOST_DEVICE constexpr int channel_at(int place, int residues) {
  const int of_residue = kCellChannels / residues;
  return place % of_residue * residues + place / of_residue;
}

enum { kX, kY };  // operands

// Everything a block needs, passed by value. 32-bit element offsets: larger tensors are declined.
struct Params {
  hopper::WeightParams weight;
  Side side[2];    // x, dY
  int32_t runs;    // segments of dY are runs of whole rows: there is one
  int32_t direct;  // the copy engine brings x to where it is read, nobody turns it
  int32_t raw_stages, raw_bytes, raw_at;
  int32_t stage_bytes;  // in whole 1024 bytes: what is turned, and a dump behind it
  int32_t dump_row;     // of a stage: eight rows for what has no place
  int32_t quads;        // output channels are whole fours
};

struct Maps {
  CUtensorMap x, y;
};

constexpr int kMostSegments = 64, kMostOctets = 63, kMostRawStages = 8;

// Sums on their way out, a tile of 64 rows a warpgroup: cells lie 72 numbers apart, so that neither neighbouring channels of
// neighbouring cells nor the fragments of a warp meet banks.
constexpr int kCellPitch = kCellChannels + 8;
CONVT2D_HOST_DEVICE constexpr int cells_of_group(WeightTile tile) {
  return tile.width * tile.instructions / kCellChannels;
}
CONVT2D_HOST_DEVICE constexpr int laid_pitch(WeightTile tile) {
  return (cells_of_group(tile) * kCellPitch + (cells_of_group(tile) % 4 * 24 + 8) % 32) * 4;
}
static_assert(laid_pitch(tile_of(0)) / 4 % 32 == 8 && laid_pitch(tile_of(1)) / 4 % 32 == 8);
CONVT2D_HOST_DEVICE constexpr int laid_bytes(WeightTile tile) {
  return kCellChannels * laid_pitch(tile);
}

// Shared memory: barriers of the stages, what instructions are about, barriers of what comes; stages; what comes; tables.
constexpr int kRawBarriersAt = 640;
static_assert(hopper::kCellsAt + hopper::kMostInstructions * sizeof(hopper::WeightCells) <=
                  kRawBarriersAt &&
              kRawBarriersAt + 16 * kMostRawStages <= hopper::kStagesAt);
CONVT2D_HOST_DEVICE int shared_bytes(const Params& p, WeightTile tile) {
  const int end = p.side[kY].table_at + table_entries(p.side[kY]) * 4,
            sums = hopper::kStagesAt + tile.groups * laid_bytes(tile);
  return end > sums ? end : sums;
}

}  // namespace convt2d::cuda::weft
