// igemm, forward and grad_input: what one block computes, and the numbers it is told.
//
// Both directions gather (core/phases.h): a destination pixel of one phase sums source pixels times
// weights over its taps. As a GEMM:  rows M = destination positions q, columns N = output channels of
// the gather (Cout forward, Cin in grad_input), reduction K = taps x the other channel count.
//
//   one block = 256 or 512 positions x `columns` channels x up to `slots` phases
//     4 or 8 warps, each 64 positions x all columns x all slots: mma.sync m16n8, fp32 accumulators
//   per K chunk (KS slices of 8 fp32 or 16 half channels) in shared memory:
//     source patch, halo included, so all taps share it; 2 to 4 stages
//       rows of pixels   [KS][patch pixels][32 B of channels, pitch 48]
//       planes (fp32)    [KS * 8 channels][patch pixels], as NCHW has them
//     weights            [KS][weight entry][columns][32 B]   entry = one tap of one slot;
//                        2 stages, or all of them for good where they fit
//   Work is a list of steps: one step = one source offset; it multiplies the shifted patch by the
//   weights of every slot that has a tap there. Empty phases have no step and store the bias.
//
// Few positions and a long reduction would leave most multiprocessors idle. So K is a sequence of units, a
// chunk of channels times some rows of taps, that is shared out: blocks of a cluster (`ranks`) each sum a run
// of units, in a block `teams` of warps work on the same 64 or more positions and share the steps. At the end
// the sums are added through shared memory, in a fixed order (igemm_share.cuh).
//
// Phases of one axis are cut into groups; the slots of a block are one row group x one column group.
// With all column phases of a row in one block, NCHW stores are contiguous.
#pragma once

#include <cstdint>

#include "core/types.h"
#include "cuda/gather_axes.h"

namespace convt2d::cuda::igemm {

constexpr int kWarpPositions = 64;
constexpr int kRowBytes = 32;    // one slice of one pixel or weight row
constexpr int kPixelPitch = 48;  // 8 consecutive pixels hit 8 different 16-byte bank groups

// Accumulators of a thread: columns / 8 x slots x 16.
struct TileRow {
  int columns, slots;
  bool shares = false;  // there is a kernel that shares the reduction out
};
// The one table of tiles; igemm_gather_launch.cuh instantiates exactly these, by index.
constexpr TileRow kTiles[] = {
    {64, 1},  // many channels, stride 1 or one phase a block
    {32, 2},  // stride 2 rows
    {16, 4},  // stride 3 and 4 rows, or all four phases of stride 2 x 2
    {32, 1, true}, {16, 2}, {8, 4, true},  // up to 8 channels
};

// Tiles with 128 accumulators a thread take up to 255 registers, in blocks of 4 or 8 warps; those with 64
// are held to 168, so that three blocks of 4 warps share a multiprocessor. Strict fp32 (`split`) keeps two sums
// for each result, and sharing a reduction out (`shared`) has more to remember: 255 for them.
constexpr bool is_large(TileRow tile, bool split, bool shared) {
  return split || shared || tile.columns * tile.slots >= 64;
}
constexpr int most_warps(TileRow tile, bool split, bool shared) {
  return is_large(tile, split, shared) ? 8 : 4;
}
constexpr int registers_of(TileRow tile, bool split, bool shared) {
  return is_large(tile, split, shared) ? 255 : 168;
}

// Only the last rows leave strict fp32 enough registers.
constexpr int kFirstSplitTile = 3;
constexpr int kTileCount = sizeof(kTiles) / sizeof(kTiles[0]);

// How a source patch reaches shared memory.
enum SourceMode : int32_t {
  kGather = 0,  // 16-bit, any strides: channel by channel through registers
  kPixelPairs =
      1,         // 16-bit, even rows of contiguous pixels: two pixels a load, turned in registers
  kVectors = 2,  // contiguous channels: asynchronous 16-byte copies into pixel rows
  kPlanes = 3,   // fp32, any strides: asynchronous 4-byte copies into planes
  kWidePlanes = 4,  // fp32, contiguous pixels: asynchronous 16-byte copies into planes
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
  AxisTable h, w;
  int32_t warps;                      // of a block; positions of a tile = 64 * warps / teams
  int32_t tile_n, tile_h, tile_w;     // positions of a tile that are used
  int32_t tiles_n, tiles_h, tiles_w;  // tiles of the position grid
  int32_t column_tiles;
  int32_t patch_h, patch_w;  // source pixels of a tile, halo included
  uint32_t patch_h_magic, patch_w_magic, tile_h_magic, tile_w_magic;  // see divide()
  int32_t slice_shift, chunks;  // log2 of the 32-byte slices of a chunk; chunks of K
  // The units of K, the last index first: chunks, row blocks (of `tap_rows` rows of taps, which advance the
  // patch by `block_rows` source rows), and what is left of the channels where a row of taps stands for
  // channels (`outer`, with its strides).
  int32_t tap_rows, row_blocks, block_rows, outer, outer_source, outer_weight;
  int32_t units;                    // chunks * row_blocks * outer
  int32_t shared;                   // whether there is any of this; then a block computes one tile
  int32_t ranks;                    // blocks of a cluster, which share the units
  int32_t teams;                    // groups of warps that share a chunk's slices, then its steps:
  int32_t slice_teams, step_teams;  // by so many each
  int32_t patch_step_h;             // rows of the patch from a position to the one below
  int32_t patch_step_w;             // pixels of the patch from a position to its neighbour
  // Columns of the patch are sorted by their residue of the stride (or of 1), of each so many: then neighbouring
  // positions are neighbouring pixels, which fall into different banks.
  int32_t residues_w, residue_pixels;
  uint32_t residue_pixels_magic;
  uint32_t chunks_magic, row_blocks_magic, patch_step_h_magic;
  int32_t stages;    // source patches in shared memory, 2 to 4
  int32_t resident;  // weights of all chunks stay in shared memory
  int32_t walkers;   // blocks that share one (group, columns, phases) combination
  int32_t source_mode, weight_vectors, weight_columns_first;
  int32_t weights_along_k;  // contiguous and wide enough to be copied asynchronously
  int32_t weights_copied;   // so, in as many stages as the sources
  int32_t vector_stores;    // 0: rows of positions; NHWC runs of channels, 1: one by one, 2: wide
  int32_t max_steps, max_entries;  // of any combination
};

// Floats of one staged channel: 64 positions x slots, padded so that lanes of a fragment spread out.
constexpr CONVT2D_HOST_DEVICE int staging_pitch(int slots) { return kWarpPositions * slots + 4; }

// Byte offsets in a block's dynamic shared memory; the planner and the kernel share this.
struct SharedMap {
  int32_t steps, entries, destinations, sources, patch, patch_stage, weights, weight_stage, staging,
      total;
};

CONVT2D_HOST_DEVICE int position_warps(const GatherParams& p) { return p.warps / p.teams; }
CONVT2D_HOST_DEVICE int positions(const GatherParams& p) {
  return position_warps(p) * kWarpPositions;
}

// A rank's run of units starts here; the next one's ends it.
CONVT2D_HOST_DEVICE int first_unit(const GatherParams& p, int rank) {
  return static_cast<int>(static_cast<int64_t>(p.units) * rank / p.ranks);
}
CONVT2D_HOST_DEVICE int most_units(const GatherParams& p) {
  return (p.units + p.ranks - 1) / p.ranks;
}

CONVT2D_HOST_DEVICE int patch_pixels(const GatherParams& p) {
  return p.tile_n * p.patch_h * p.patch_w;
}

// Words of one channel plane: eight rows apart fall into other banks.
CONVT2D_HOST_DEVICE int plane_pitch(const GatherParams& p) {
  return (patch_pixels(p) + 23) / 32 * 32 + 8;
}

CONVT2D_HOST_DEVICE bool in_planes(const GatherParams& p) { return p.source_mode >= kPlanes; }

// Bytes from a slice to the next. Eight threads copy the 16-byte pieces of four slices of a pixel or weight row:
// 32 more than a multiple of 128, so that these fall into different banks.
CONVT2D_HOST_DEVICE int between_slices(int bytes) { return (bytes + 127) / 128 * 128 + 32; }
CONVT2D_HOST_DEVICE int patch_slice(const GatherParams& p) {
  return in_planes(p) ? plane_pitch(p) * 32 : between_slices(patch_pixels(p) * kPixelPitch);
}
CONVT2D_HOST_DEVICE int weight_slice(const GatherParams& p, int columns) {
  return between_slices(p.max_entries * (columns * kRowBytes + 16));
}

CONVT2D_HOST_DEVICE SharedMap shared_map(const GatherParams& p, int columns, int slots) {
  SharedMap map{};
  const int pixels = patch_pixels(p);
  int at = 0;
  map.steps = at;
  at += p.max_steps * (1 + slots) * 4;
  map.entries = at;
  at += p.max_entries * 4;
  at = (at + 15) / 16 * 16;
  map.destinations = at;  // two tiles: one computed, one still being stored
  at += 2 * positions(p) * 8;
  map.sources = at;  // two tiles
  at += 2 * pixels * 4;
  at = (at + 127) / 128 * 128;
  map.patch = at;
  map.patch_stage = patch_slice(p) << p.slice_shift;
  at += p.stages * map.patch_stage;
  at = (at + 127) / 128 * 128;
  map.weights = at;
  map.weight_stage = weight_slice(p, columns) << p.slice_shift;
  at += (p.resident ? most_units(p) : p.weights_copied ? p.stages : 2) * map.weight_stage;
  // Sums on their way to who adds them lie where patches and weights were.
  const int sums = p.shared ? p.warps * kWarpPositions * columns * slots * 4 : 0;
  at = at < map.patch + sums ? map.patch + sums : at;
  at = (at + 127) / 128 * 128;
  map.staging = at;  // each warp: 8 channels x 64 positions x slots, fp32
  at += p.vector_stores ? 0 : position_warps(p) * 8 * staging_pitch(slots) * 4;
  map.total = at;
  return map;
}

}  // namespace convt2d::cuda::igemm
