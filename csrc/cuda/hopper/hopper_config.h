// hopper, forward and grad_input: what one block computes, and the numbers it is told.
//
// Both directions gather (core/phases.h): a destination position of one phase sums source pixels times
// weights over its taps. As a GEMM:  positions x columns (Cout forward, Cin in grad_input), reduction
// K = taps x the other channel count. A block has 16 warps in four warpgroups with two roles:
//
//   producers (2)  bring K in chunks to shared memory: the source patch, halo included, so all taps share
//                  it; and the weights, unless all of them fit and stay
//   consumers (2)  multiply (wgmma, both operands from shared memory) and store
//
// Everything in shared memory is rows of 16 bytes along K; two of them are a slice, what one wgmma eats:
//
//   source   [slice][half][plane][pixel of the plane][16 B]
//   weights  [slice][product][half][row][16 B]
//
// A plane holds the pixels of one residue modulo the source step (grad_input; forward has one plane), so
// that neighbouring positions are neighbouring pixels. A product is one source offset: the patch, shifted
// by adding to its address, times one matrix of weights. An operand takes its 64 to 128 positions as
// groups of eight pixels, `group_pixels` apart: 8 (a run) or a row of the plane (a column, 8 wide).
//
// Two forms of the sum, by what its rows are:
//   pixel rows    64 positions x `width` columns; for NHWC, where a thread then holds neighbouring
//                 channels, and for few channels. Several phases lie side by side in the columns; a
//                 phase without a tap at an offset meets zeros there.
//   channel rows  64 channels x `width` positions x `slots` phases; for NCHW, where a thread then holds
//                 neighbouring outputs of a row, all column phases of it interleaved.
#pragma once

#include <cstdint>

#include "core/types.h"
#include "cuda/gather_axes.h"

namespace convt2d::cuda::hopper {

constexpr int kProducers = 256, kConsumers = 256;  // threads
constexpr int kThreads = kProducers + kConsumers;
constexpr int kConsumerGroups = 2;
constexpr int kProducerRegisters = 96, kConsumerRegisters = 160;  // 256 x each fill the file
constexpr int kGroup = 8;                                         // pixels of a core matrix
constexpr int kHalfBytes = 16;                                    // of a row
constexpr int kSliceBytes = 32;                                   // of a row
constexpr int kChannelRows = 64;  // channels a tile of channel rows has
constexpr int kMaxStages = 8;
constexpr int kMaxKernelTaps = 64;  // of turned kernels

// Sums of a consumer thread: width / 2 x operands x slots, at most 128.
struct TileRow {
  bool channel_rows;
  int width;     // N of the instruction
  int operands;  // of positions, for each consumer group
  int slots;     // phases with sums of their own
};
// The one table of tiles; hopper_gather_launch.cuh instantiates exactly these, by index.
constexpr TileRow kTiles[] = {
    {false, 8, 4, 1},  // up to 8 columns, phases included
    {false, 16, 4, 1}, {false, 32, 4, 1},
    {false, 64, 2, 1}, {false, 128, 2, 1},  // many channels, NHWC
    {true, 128, 2, 1},                      // many channels, stride 1
    {true, 128, 1, 2},                      // stride 2 rows
    {true, 64, 1, 4},                       // stride 3 and 4 rows, or stride 2 x 2
};
constexpr int kTileCount = sizeof(kTiles) / sizeof(kTiles[0]);

CONVT2D_HOST_DEVICE constexpr int operand_positions(TileRow tile) {
  return tile.channel_rows ? tile.width : 64;
}
CONVT2D_HOST_DEVICE constexpr int block_positions(TileRow tile) {
  return kConsumerGroups * tile.operands * operand_positions(tile);
}
CONVT2D_HOST_DEVICE constexpr int weight_rows(TileRow tile) {
  return tile.channel_rows ? kChannelRows : tile.width;
}
// Bytes of one product's weights for a slice; the 16 more spread products over banks.
CONVT2D_HOST_DEVICE constexpr int product_bytes(TileRow tile) {
  return weight_rows(tile) * kSliceBytes + 16;
}

// How a thread loads the source: 8 channels of a pixel, whole slices, or vectors across K.
enum SourceMode : int32_t {
  kPixels = 0,       // any strides
  kVectors = 1,      // contiguous channels
  kTurned = 2,       // 16 bytes of neighbouring pixels, turned on their way (hopper_turn.cuh)
  kTurnedWords = 3,  // the same, word by word: rows are not made of whole vectors
};

// The same of the weights. Turned kernels come with pixels and turned pixels, the vectors and columns with
// vectors of channels.
enum WeightMode : int32_t {
  kResident = -1,      // not the producers' business
  kElements = 0,       // any strides
  kWeightVectors = 1,  // contiguous along K
  kTurnedKernels = 2,  // [columns][taps] contiguous: NCHW forward
  kTurnedColumns = 3,  // columns of a tap contiguous: NHWC forward
};

// Everything a block needs, passed by value. 32-bit element offsets: larger tensors are declined.
struct GatherParams {
  const void* source;
  const void* weight;
  const void* bias;  // or null
  void* destination;
  int32_t source_stride[4], destination_stride[4];                         // n, c, h, w
  int32_t weight_group, weight_reduce, weight_column, weight_h, weight_w;  // strides
  int32_t batch, groups, reduce, columns;                                  // channels a group
  int32_t element_bytes;
  AxisTable h, w;
  int32_t tile_n, tile_h, tile_w;     // positions of a tile that are used
  int32_t tiles_n, tiles_h, tiles_w;  // tiles of the position grid
  int32_t tile_channels;              // of a column tile
  int32_t column_tiles;
  int32_t plane_h, plane_w;    // pixels; a plane has tile_n images of them
  int32_t planes_h, planes_w;  // residues modulo the source step
  int32_t operand_columns;     // operands side by side: 0 if they are runs
  int32_t load_h, load_w;      // pixels to load for one image: all planes' rows, units of a row
  uint32_t plane_h_magic, plane_w_magic, load_h_magic, load_w_magic, planes_h_magic, planes_w_magic;
  int32_t slice_shift, chunks;           // log2 of the slices of a chunk; chunks of K
  int32_t source_stages, weight_stages;  // buffers, an even number; 0 weight stages: all stay
  int32_t part_products, parts;  // products whose weights a stage holds; such parts of a chunk
  int32_t walkers;               // blocks that share one (group, columns, phases) combination
  int32_t source_mode, weight_mode;
  int32_t whole_weight_mode;     // if a stage holds all products of a chunk
  int32_t weight_columns_first;  // of elements: neighbouring threads load neighbouring columns
  int32_t weight_vectors;        // what set_operands finds; weight_mode decides
  int32_t kernel_taps;           // of turned kernels, else 0
  uint32_t kernel_taps_magic;
  int32_t vector_stores;  // NHWC: runs of neighbouring channels, aligned
  int32_t max_products;   // of any combination
  int32_t overrun;        // pixels an operand may reach beyond the patch
};

CONVT2D_HOST_DEVICE int plane_pixels(const GatherParams& p) {
  return p.tile_n * p.plane_h * p.plane_w;
}
CONVT2D_HOST_DEVICE int patch_pixels(const GatherParams& p) {
  return p.planes_h * p.planes_w * plane_pixels(p);
}
// From the first to the second half of a slice, and from slice to slice. The 32 over a multiple of 128 keep
// the slices of one pixel in different banks, which is how whole slices arrive.
CONVT2D_HOST_DEVICE int source_half(const GatherParams& p) { return patch_pixels(p) * kHalfBytes; }
CONVT2D_HOST_DEVICE int source_slice(const GatherParams& p) {
  return (patch_pixels(p) * kSliceBytes + 127) / 128 * 128 + 32;
}
// Positions eight apart in an operand, in pixels.
CONVT2D_HOST_DEVICE int group_pixels(const GatherParams& p) {
  return p.operand_columns ? p.plane_w : kGroup;
}
// Phases side by side in the columns of a tile of pixel rows.
CONVT2D_HOST_DEVICE int stacked(const GatherParams& p, TileRow tile) {
  return tile.channel_rows ? 1 : p.h.slots * p.w.slots;
}

// Units of a tile that a producer loads by: pixels or vectors of them.
CONVT2D_HOST_DEVICE int source_units(const GatherParams& p) {
  return p.tile_n * p.load_h * p.load_w;
}

// Channel rows go to memory through a buffer of each consumer warp: 128 bytes of each of its 16 rows, and
// between them what spreads the lanes' runs of two positions over the banks.
constexpr int kStagedRow = 128, kStagedRows = 16;
CONVT2D_HOST_DEVICE constexpr int staging_pitch(TileRow tile, int element_bytes) {
  const int run = 2 * tile.slots * element_bytes;
  return kStagedRow + (run > 16 ? 16 : 4 * run);
}
CONVT2D_HOST_DEVICE constexpr int staging_bytes(TileRow tile, int element_bytes) {
  return kStagedRows * staging_pitch(tile, element_bytes);
}

// What the consumers look up (hopper_gather.cuh), behind the barriers.
constexpr int kKnown = 4 * kMaxStages * 8, kKnownBytes = 256;

// Where turned rows go that nobody wants: one a lane.
constexpr int kDumpBytes = 32 * kHalfBytes;

// A row or column of the sum that stands for a channel (and a phase).
struct ColumnInfo {
  int32_t offset;            // elements from phase (0, 0) of channel 0 of the tensor; -1: nothing
  int16_t phase_h, phase_w;  // in the group
  int32_t channel;           // of the group
  float bias;
};

// Byte offsets in a block's dynamic shared memory; the planner and the kernel share this.
struct SharedMap {
  int32_t barriers, shifts, taps, kernel, dump, columns, positions, destinations, staging, sources,
      patch, patch_stage, weights, weight_stage, total;
};

CONVT2D_HOST_DEVICE SharedMap shared_map(const GatherParams& p, TileRow tile) {
  SharedMap map{};
  int at = 0;
  map.barriers = at;
  at += 4 * kMaxStages * 8;
  at += kKnownBytes;
  map.shifts = at;
  at += p.max_products * 4;
  map.taps = at;
  at += p.max_products * stacked(p, tile) * 4;
  map.kernel = at;
  at += p.kernel_taps * 4;
  at = (at + 15) / 16 * 16;
  map.dump = at;
  at += kDumpBytes;
  map.columns = at;
  at += weight_rows(tile) * 16;
  map.positions = at;
  at += block_positions(tile) * 4;
  map.destinations = at;
  at += tile.channel_rows ? block_positions(tile) * 8 : 0;
  map.staging = at;
  at += tile.channel_rows ? kConsumers / 32 * staging_bytes(tile, p.element_bytes) : 0;
  map.sources = at;  // a list for each producer group
  at += 2 * (source_units(p) + 3) * 8;
  at = (at + 127) / 128 * 128;
  map.patch = at;
  map.patch_stage = source_slice(p) << p.slice_shift;
  at += p.source_stages * map.patch_stage;
  const int reach = at + p.overrun * kHalfBytes;
  at = (at + 127) / 128 * 128;
  map.weights = at;
  map.weight_stage = (p.part_products * product_bytes(tile)) << p.slice_shift;
  at += (p.weight_stages ? p.weight_stages : p.chunks) * map.weight_stage;
  map.total = at > reach ? at : reach;
  return map;
}

}  // namespace convt2d::cuda::hopper
