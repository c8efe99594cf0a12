// igemm, grad_weight: what one block computes, and the numbers it is told.
//
//   dW[ci, co, tap] = sum over pixels of x[ci, pixel] * dY[co, pixel * stride - near_pad + tap * d]
//
// As a GEMM: rows M = input channels, columns N = (tap, output channel), reduction K = the pixels of x.
//
//   one block = warps_m x warps_n warps; a warp: a tile of kWeightTiles, mma.sync m16n8
//     unit = eight output channels at one tap; the units of a block are taps_h x taps_w taps x octets
//   per K tile (tile_n x tile_h x tile_w pixels) in shared memory, two stages:
//     x   [octet of channels][pixel][16 or 2 x 16 B]
//     dY  [octet of channels][patch pixel][ditto]      patch = all that the block's taps meet
//   A row of 16 bytes holds channels of one pixel, so a tap is a shift by whole rows, and the tensor core's
//   K, the pixels, comes out of it by ldmatrix.trans (16 bits) or by words (32 bits).
//
// Taps of an axis are sorted by (offset mod stride, offset / stride). Neighbouring x pixels meet dY pixels
// `stride` apart; those of one residue lie together in the patch, and residues no tap needs are not there.
// Blocks that share dW but not the pixels write partial sums; a second pass adds them in a fixed order.
#pragma once

#include <cstdint>

#include "core/types.h"

namespace convt2d::cuda::igemm {

constexpr int kMaxTaps = 128;

// A warp: 16 * row_tiles input channels x units. Accumulators of a thread: row_tiles * units * 4. A
// multiprocessor has four files of 16384 registers, so up to 8 warps may have 255 a thread, up to 12 168.
// `parcels`: how many a thread has under way.
struct WeightTile {
  int row_tiles, units, most_warps, min_blocks, parcels;
};
constexpr WeightTile kWeightTiles[] = {
    {4, 8, 8, 1, 2},    // 64 input channels
    {4, 6, 12, 1, 1},   // ditto, 3 x 3 taps of 64 channels in a block
    {2, 12, 12, 1, 1},  // up to 32
    {1, 8, 8, 2, 2},    // up to 16
};
constexpr int kWeightTileCount = sizeof(kWeightTiles) / sizeof(kWeightTiles[0]);

// How an operand reaches shared memory.
enum OperandMode : int32_t {
  kChannels = 0,    // any strides: channel by channel through registers
  kPixelTwins = 1,  // 16 bits, even rows of contiguous pixels: two pixels a load
  kRows = 2,        // contiguous channels: asynchronous 16-byte copies
};

// Taps of one axis, sorted; `part` neighbours go to one block, the last block may get fewer.
struct WeightAxis {
  int16_t tap[kMaxTaps];
  int16_t offset[kMaxTaps];  // dY position the tap meets from x position 0
  int16_t shift[kMaxTaps];   // first row of the patch for it, counted from the part's first tap
  int32_t taps, part, parts;
  int32_t stride, x_extent, y_extent;
};

// Everything a block needs, passed by value. 32-bit element offsets: larger tensors are declined.
struct WeightParams {
  const void* x;
  const void* y;
  void* weight;     // written when there is one piece of one run
  float* partials;  // else [pieces][kh][kw][ci][co]
  int32_t x_stride[4], y_stride[4], weight_stride[4];
  int32_t batch, groups, rows, columns;  // channels of one group: rows of x, columns of dY
  WeightAxis h, w;
  int32_t warps_m, warps_n, units, octets;                // units of all warps; octets of dY channels
  int32_t row_blocks, octet_blocks;                       // blocks side by side
  int32_t tile_n, tile_h, tile_w;                         // pixels of a K tile that are used
  int32_t tiles_n, tiles_h, tiles_w;                      // K tiles
  uint32_t tile_h_magic, tile_w_magic;                    // see divide()
  int32_t pixels;                                         // of a K tile, used or not: 32 n
  int32_t patch_pixels, y_entries;                        // of the largest part
  int32_t patch_h, runs;                                  // ditto: rows, loads along a row
  int32_t x_mode, y_mode, split, run_tiles, row_octets;   // run: tiles of one sum in registers
};

// 16-byte rows of one octet or quad of channels: eight pixels of two quads hit all banks.
constexpr CONVT2D_HOST_DEVICE int plane_rows(int pixels) { return (pixels + 3) / 8 * 8 + 4; }

// Byte offsets in a block's dynamic shared memory; the planner and the kernel share this.
struct WeightMap {
  int32_t rows, runs, run_rows, y_rows, units, shifts, bases, valid, x_sources, y_sources, stages,
      y_stage, stage, total;
};

CONVT2D_HOST_DEVICE WeightMap weight_map(const WeightParams& p, int element_bytes) {
  WeightMap map{};
  const int planes = element_bytes / 2;  // of an octet
  int at = 0;
  const auto take = [&at](int bytes) {
    const int here = at;
    at += (bytes + 15) / 16 * 16;
    return here;
  };
  map.rows = take(p.patch_h * 4);       // dY row of a patch row, from the tile's first
  map.runs = take(p.runs * 4);          // dY column of a load
  map.run_rows = take(p.runs * 4);      // patch columns of its one or two pixels
  map.y_rows = take(p.y_entries * 4);   // patch pixels of every load
  map.units = take(p.units * 4);          // bytes from pixel to unit
  map.shifts = take(p.units * 4);         // the tap's part of it, in pixels
  map.bases = take(p.pixels * 4);       // patch pixel of tap 0, in bytes
  map.valid = take(p.pixels + p.patch_pixels);
  map.x_sources = take(2 * p.pixels * 4);  // element offset of every load, -1: zeros; two tiles
  map.y_sources = take(2 * p.y_entries * 4);
  at = (at + 127) / 128 * 128;
  map.stages = at;
  map.y_stage = p.row_octets * planes * plane_rows(p.pixels) * 16;
  map.stage = map.y_stage + p.octets * planes * plane_rows(p.patch_pixels) * 16;
  map.total = at + 2 * map.stage;
  return map;
}

}  // namespace convt2d::cuda::igemm
