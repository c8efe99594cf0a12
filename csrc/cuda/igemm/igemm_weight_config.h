// igemm, grad_weight: what one block computes, and the numbers it is told.
//
//   dW[ci, co, tap] = sum over pixels of x[ci, pixel] * dY[co, pixel * stride - near_pad + tap * d]
//
// As a GEMM: rows M = input channels, columns N = (tap, output channel), reduction K = the pixels of x.
//
//   one block = warps_m x warps_n warps that multiply, a WeightTile each (mma.sync m16n8, or four warps
//   together one wgmma), and `producers` that meanwhile bring the next K tiles in; one barrier a tile
//     unit = eight output channels at one tap; the units of a block are taps_h x taps_w taps x octets
//   per K tile (tile_n x tile_h x tile_w pixels) in shared memory, two to four stages:
//     x   [octet of channels][pixel][16 or 2 x 16 B]
//     dY  [octet of channels][patch pixel][ditto]      patch = all that the block's taps meet
//   A row of 16 bytes holds channels of one pixel, so a tap is a shift by whole rows, and the tensor core's
//   K, the pixels, comes out of it by ldmatrix.trans or turned descriptors (16 bits) or by words (32 bits).
//   Contiguous pixels stay in planes, [channel][pixel], where nothing shifts them: x, and words, whose fragments
//   are read one by one.
//
// Taps of an axis are sorted by (offset mod stride, offset / stride). Neighbouring x pixels meet dY pixels
// `stride` apart; those of one residue lie together in the patch, and residues no tap needs are not there.
// The columns of planes lie as dY has them.
// Blocks that share dW but not the pixels write partial sums; a second pass adds them in a fixed order.
#pragma once

#include <cstdint>

#include "core/types.h"

namespace convt2d::cuda::igemm {

constexpr int kMaxTaps = 128;

// What one multiplying warp computes: 16 * row_tiles input channels x units. Accumulators of a thread:
// row_tiles * units * 4. With a `width`, four warps side by side along the rows multiply together where the chip
// can, in instructions of so many units of a tap (wgmma); elsewhere each multiplies alone.
struct WeightTile {
  int row_tiles, units, width;
  bool x_in_registers;  // else it comes from shared memory, as rows of eight channels
};
// Words of 32 bits have the first three.
constexpr CONVT2D_HOST_DEVICE int weight_tile_count(int element_bytes) {
  return element_bytes == 2 ? 5 : 3;
}

// 64 input channels; up to 32; up to 16; groups of warps. Words of 32 bits take more registers to address.
constexpr CONVT2D_HOST_DEVICE WeightTile weight_tile(int row, int element_bytes) {
  return row == 0   ? WeightTile{4, element_bytes == 2 ? 8 : 6, 0, true}
         : row == 1 ? WeightTile{2, 12, 0, true}
         : row == 2 ? WeightTile{1, 16, 0, true}
         : row == 3 ? WeightTile{1, 32, 8, true}
                    : WeightTile{1, 24, 8, false};
}
// Warps of a multiprocessor: its 65536 registers are 168 for each thread of 12 warps, 128 of 16.
constexpr CONVT2D_HOST_DEVICE int weight_warps(int row) { return row == 4 ? 16 : 12; }

// How an operand reaches shared memory.
enum WeightMode : int32_t {
  kByVectors = 0,  // contiguous channels: asynchronous 16-byte copies
  kByPlanes = 1,   // contiguous pixels: ditto, of a channel each, or of 8 or 4 bytes
  kByWords = 2,    // words, any strides: asynchronous 4-byte copies
  kByParcels = 3,  // 16 bits: through registers, `run` pixels of eight channels at once
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
  int32_t piece_floats;
  int32_t x_stride[4], y_stride[4], weight_stride[4];
  int32_t batch, groups, rows, columns;  // channels of one group: rows of x, columns of dY
  WeightAxis h, w;
  int32_t warps_m, warps_n, producers;  // warps that multiply, warps that bring tiles in
  int32_t x_producers;                  // those that bring x in
  int32_t units, octets;                // units of all warps; octets of dY channels
  int32_t row_blocks, octet_blocks;     // blocks side by side
  int32_t tile_n, tile_h, tile_w;       // pixels of a K tile that are used
  int32_t tiles_n, tiles_h, tiles_w;    // K tiles
  uint32_t tile_h_magic, tile_w_magic;  // see divide()
  int32_t pixels;                       // of a K tile, used or not: 32 n
  int32_t patch_pixels, y_loads;        // of the largest part
  int32_t patch_h, row_loads;           // ditto: rows, loads along a row
  int32_t x_mode, y_mode;               // WeightMode
  int32_t x_run, y_run;                 // pixels of a load
  int32_t stages;                       // K tiles in shared memory; no result depends on it
  int32_t split, turn_tiles;            // pieces; K tiles whose sum stays in registers
  int32_t row_octets;                   // octets of input channels a block has
};

// One load of either operand: for all tiles the same, up to where the tile starts.
struct alignas(16) WeightLoad {
  int32_t offset;  // elements
  int32_t place;   // row << 16 | column & 0xffff
  // Of parcels: up to four 16-bit pixels of the patch, or of x; kNoPixel: not needed. Else `low` is the first
  // pixel's place in a plane, in bytes.
  uint32_t low, high;
};
constexpr uint32_t kNoPixel = 0xffff;

// Bytes from pixel to pixel in shared memory.
CONVT2D_HOST_DEVICE int pixel_bytes(int mode, int element_bytes) {
  return mode == kByPlanes ? element_bytes : 16;
}

// An operand in shared memory: planes of an octet (16 bits), a quad (words) or a channel (kByPlanes), and the bytes
// of each. An odd number of 16-byte rows: those of one pixel and eight octets hit all banks, and so do those of
// eight channels. Of quads: so do four pixels of two.
CONVT2D_HOST_DEVICE int plane_count(int mode, int octets, int element_bytes) {
  return octets * (mode == kByPlanes ? 8 : element_bytes / 2);
}
CONVT2D_HOST_DEVICE int plane_bytes(int mode, int pixels, int element_bytes) {
  const int rows = mode == kByPlanes    ? (pixels * element_bytes + 15) / 16 | 1
                   : element_bytes == 2 ? pixels | 1
                                        : (pixels + 3) / 8 * 8 + 4;
  return rows * 16;
}

// Whether copy_pixels() shares out loads among its warps, or channels.
CONVT2D_HOST_DEVICE bool shares_loads(int loads, int producers) { return loads >= 16 * producers; }

constexpr int kScopeBytes = 112;  // WeightScope

// Byte offsets in a block's dynamic shared memory; the planner and the kernel share this.
struct WeightMap {
  int32_t scope, rows, columns, column_pixels, units, shifts, targets, lefts, bases, valid, x_loads,
      y_loads, stages, y_stage, stage, total;
};

CONVT2D_HOST_DEVICE WeightMap weight_map(const WeightParams& p, int element_bytes) {
  WeightMap map{};
  int at = 0;
  const auto take = [&at](int bytes) {
    const int here = at;
    at += (bytes + 15) / 16 * 16;
    return here;
  };
  map.scope = take(kScopeBytes);
  map.rows = take(p.patch_h * 4);             // dY row of a patch row, from the tile's first
  map.columns = take(p.row_loads * 4);        // dY column of a load
  map.column_pixels = take(p.row_loads * 8);  // patch columns of its up to four pixels
  map.units = take(p.units * 4);              // bytes from pixel to unit
  map.shifts = take(p.units * 4);             // the tap's part of it, in pixels
  map.targets = take(p.units * 4);            // first element of the unit in dW or its partial sums
  map.lefts = take(p.units * 4);              // output channels from there on
  map.bases = take(p.pixels * 4);             // patch pixel of tap 0, in bytes
  map.valid = take(p.pixels + p.patch_pixels);
  map.x_loads = take(p.pixels * 16);
  map.y_loads = take(p.y_loads * 16);
  at = (at + 127) / 128 * 128;
  map.stages = at;
  map.y_stage = plane_count(p.x_mode, p.row_octets, element_bytes) *
                plane_bytes(p.x_mode, p.pixels, element_bytes);
  map.stage = map.y_stage + plane_count(p.y_mode, p.octets, element_bytes) *
                                plane_bytes(p.y_mode, p.patch_pixels, element_bytes);
  map.total = at + p.stages * map.stage;
  return map;
}

}  // namespace convt2d::cuda::igemm
