// shuttle: grad_weight of 16-bit NCHW tensors, where many taps read a row of dY.
//
//   dW[ci, co, kh, kw] = sum over pixels (h, w) of x[ci, h, w] * dY[co, h * stride - pad + kh * d, w * stride - pad + kw * d]
//
// As a GEMM on wgmma: M = 64 input channels, N = cells of 64 output channels and a tap, K = 64 pixels of a row of x, of one image
// or of two or four small ones beside each other. The first operand comes as it lies (copy engine) and is fetched to registers
// (ldmatrix), once for all cells of a warpgroup. The second one must be rows of channels, so that a tap is an address: a block
// goes down a strip of columns, and warps turn each row of dY that its taps read, once, into a ring of entries:
//
//   entry  [row of dY, by what it leaves when divided by the stride][block of 64 output channels]
//          [column, likewise][image][pixel][128 bytes of channels, swizzled]
//
// A tap along columns is a shift by whole pixels, one along rows an entry farther on.
//
// Rows of dY may start anywhere, and the copy engine's boxes start, and step, at whole 16 bytes. Channels that lie a multiple of
// eight apart do so whatever the planes' size is, and start alike. So each of eight maps of dY has every eighth channel, whose
// rows it brings from a multiple of 16 bytes on; that is also what ldmatrix takes at once, and pixels find their places by the
// addresses that stmatrix is given. Columns of a cell are therefore channels in the order 0, 8, 16 .. 56, 1, 9 .. 63.
//
// A warp that turns waits for most of what it does, and does much beside turning. So each has two eights of channels at once, and
// where there are eight such warps, two sets of them have every second entry each.
//
// Blocks that share dW but not the pixels write partial sums, [kh][kw][ci][co].
#pragma once

#include <cuda.h>

#include <cstdint>
#include <initializer_list>

#include "core/types.h"
#include "cuda/device/index.cuh"

namespace convt2d::cuda::shuttle {

// Cells of a warpgroup that multiplies; how many of those; warps that turn.
struct Tile {
  int cells, groups, turners;
};
constexpr Tile kTiles[] = {
    {4, 2, 8},
    {3, 3, 4},
    {5, 2, 8},
};
constexpr int kTileCount = sizeof(kTiles) / sizeof(kTiles[0]);

constexpr int kChannels = 64;  // of a cell
constexpr int kClasses = 8;    // channels that start alike are so far apart
constexpr int kPixels = 64, kStep = 16, kSteps = kPixels / kStep;  // of a K tile
constexpr int kMostRowTaps = 16, kMostRowUnits = 16, kMostResidues = 4;
constexpr int kMostSlots = 12, kMostParts = 16;

// Parts of a warp under way; what it has beside them in shared memory: their barriers, and what parts are.
constexpr int kSetWarps = 4, kPair = 2;  // warps that turn an entry, each two eights of channels
constexpr int kStages = kSetWarps;       // of x
constexpr int kRawStages = 2, kPartsAt = 16, kNoteBytes = kPartsAt + 16 * kMostParts;
static_assert(8 * kRawStages <= kPartsAt);
constexpr int kNowhere = -(1 << 30);  // on a map: zeros

CONVT2D_HOST_DEVICE constexpr int consumers(Tile tile) { return 128 * tile.groups; }
CONVT2D_HOST_DEVICE constexpr int threads(Tile tile) { return consumers(tile) + 32 * tile.turners; }
// Of a thread; together no more than the block starts with, or it waits for ever.
CONVT2D_HOST_DEVICE constexpr int consumer_registers(Tile tile) {
  return tile.cells > 4 ? 208 : tile.groups == 2 ? 200 : 152;
}
CONVT2D_HOST_DEVICE constexpr int turner_registers(Tile tile) { return tile.cells > 4 ? 48 : 56; }
constexpr bool registers_suffice() {
  for (const Tile tile : kTiles)
    if (threads(tile) > 512 ||
        consumers(tile) * consumer_registers(tile) + 32 * tile.turners * turner_registers(tile) >
            65536)
      return false;
  return true;
}
static_assert(registers_suffice());

// A kernel row: its entry, from the first one that its unit reads, and which of the entry's rows.
struct RowTap {
  int16_t kernel_h, entry, residue;
};
// Kernel rows that a block has: entries that a row of x reads, from entry h + low on; the rows of an entry.
struct RowUnit {
  int16_t low, depth, residues;
  int16_t residue[kMostResidues];
};

// Everything a block needs, passed by value. 32-bit element offsets: larger tensors are declined.
struct Params {
  const void *x, *y;
  void* weight;
  float* partials;
  int32_t piece_floats;
  int32_t stride[4];                     // of dW or of a piece: ci, co, kh, kw
  int32_t batch, groups, rows, columns;  // channels of one group: rows of x, columns of dY
  int32_t x_h, x_w, y_h, y_w;
  int32_t stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, kernel_h, kernel_w;
  int32_t x_blocks, y_blocks, unit_h, unit_w;  // of a block
  int32_t row_blocks, column_blocks, units_h, units_w;
  int32_t tile_n, tile_w, strips, image_groups;
  int32_t patch;  // columns of dY that a block's taps read, of a tile of an image
  int32_t pitch;  // pixels of an image that leave the same when divided by the stride
  int32_t plane_bytes, entry_bytes;  // of all such; of an entry
  int32_t slots;
  int32_t raw_pitch, raw_bytes;  // of a channel's row of dY as it comes; of eight, of all images
  int32_t stride_shift;          // log2 of the stride along columns, if that is 1, 2 or 4; else -1
  int32_t y_at, raw_at, spare_at;
  int32_t split;
  FastDivide by_stride, by_rows, by_strips;
  int32_t lead[kClasses];  // numbers of a map before a plane's first one
  RowTap row_tap[kMostRowTaps];
  RowUnit row_unit[kMostRowUnits];
};

// What the copy engine is told: x; and dY, of which a map has the channels that leave the same when divided by eight, since these
// start alike, and rows of a plane one behind the other.
struct Maps {
  CUtensorMap x, y[kClasses];
};

CONVT2D_HOST_DEVICE constexpr int x_stage_bytes(int x_blocks) {
  return x_blocks * kChannels * kPixels * 2;
}
// Shared memory: barriers of both rings, what warps that turn have beside their parts, x, the ring of dY, rows as they come, where
// pixels go that nobody reads. In the end the warpgroups' sums, in the place of what lies from x on.
constexpr int kMostTurners = 8, kSlotBarriers = 16 * kStages, kNotes = 512, kXAt = 3072;
static_assert(kSlotBarriers + 16 * kMostSlots <= kNotes &&
              kNotes + kMostTurners * kNoteBytes <= kXAt);
constexpr int kSumPitch = (kChannels + 4) * 4, kCellBytes = kChannels * kSumPitch;
CONVT2D_HOST_DEVICE constexpr int sum_bytes(Tile tile) {
  return tile.groups * tile.cells * kCellBytes;
}

}  // namespace convt2d::cuda::shuttle
