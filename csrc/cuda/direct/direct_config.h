// direct: what one block computes, and the tables of tiles.
//
// fwd and grad_input are one gather (core/phases.h), an implicit GEMM:
//   rows     pixels: destination positions q of one phase, over the whole batch
//   columns  destination channels of one group; forward may stack the phases of an axis beside them
//            (column = (channel, phase_h, phase_w)), so that one source tile serves all phases
//   depth    taps (of a stacked axis: source offsets) x source channels of the group
//
// grad_weight is a GEMM as well:
//   rows     input channels of one group
//   columns  (output channel, tap), in the memory order of w
//   depth    input pixels of the whole batch, cut into `split` pieces by a rule of the shape alone
#pragma once

#include <cstdint>

#include "core/args.h"
#include "core/phases.h"
#include "core/plan.h"
#include "cuda/device/index.cuh"

namespace convt2d::cuda::direct {

// A block's tile, what one thread holds of it, how deep one slab in shared memory is, and how many
// blocks an SM must hold (which bounds the registers). `correction` is measured over modelled time on
// the H200 (2025-11, the fp32 NCHW layers of layers.json where that tile is the best one).
struct Tile {
  int rows, columns, thread_rows, thread_columns, depth, min_blocks;
  double correction;

  constexpr int threads() const { return rows / thread_rows * (columns / thread_columns); }
};

// fp64 accumulators take two registers and twice the shared memory: the same tile is held by twice the
// threads, in slabs half as deep.
constexpr Tile fitted(Tile tile, bool wide) {
  if (wide) {
    tile.thread_rows /= 2;
    tile.depth /= 2;
    tile.min_blocks = 1;
  }
  return tile;
}

constexpr Tile kGatherTiles[] = {
    {128, 64, 8, 8, 16, 3, 1.0},   // many channels
    {256, 16, 8, 4, 8, 4, 1.35},   // up to 16 columns
    {64, 32, 4, 4, 16, 4, 1.0},    // few pixels: more, smaller blocks
    {128, 32, 8, 4, 16, 4, 0.95},  // 17 to 32 columns               (fp32 only from here on)
    {512, 8, 8, 4, 4, 4, 1.3},     // up to 8 columns
    {512, 4, 8, 4, 4, 6, 1.3},     // up to 4 columns
};
constexpr int kGatherTileCount = sizeof(kGatherTiles) / sizeof(kGatherTiles[0]);

constexpr Tile kWeightTiles[] = {
    {64, 128, 8, 8, 16, 3, 0.87},  // up to 64 input channels a group
    {16, 64, 4, 4, 16, 8, 0.87},   // few input channels, depthwise
    {128, 64, 8, 8, 16, 3, 0.87},  // many channels               (fp32 only from here on)
    {32, 128, 8, 4, 16, 4, 0.87},  // up to 32 input channels
};
constexpr int kWeightTileCount = sizeof(kWeightTiles) / sizeof(kWeightTiles[0]);

// Rows of the tables that a dtype is compiled for.
constexpr int gather_tiles(DType dtype) { return dtype == DType::f32 ? kGatherTileCount : 3; }
constexpr int weight_tiles(DType dtype) { return dtype == DType::f32 ? kWeightTileCount : 2; }

// What becomes of the phases of w: blocks of their own, columns beside each other, or steps of a loop
// inside the block. The last two let it store whole rows.
enum class PhaseMode : int32_t { separate, stacked, looped };

// Plan.row of a gather: the tile, and how phases are dealt with.
struct GatherRow {
  int tile;
  bool stack_h;
  PhaseMode mode_w;

  int32_t encode() const { return tile * 6 + stack_h * 3 + static_cast<int32_t>(mode_w); }
  static GatherRow decode(int32_t row) {
    return {row / 6, row % 6 / 3 != 0, static_cast<PhaseMode>(row % 3)};
  }
};

// After the tiles comes one more kernel, for few results with long sums: every thread of a block
// works on the same `kDotPixels` x `kDotChannels` results, for its share of the depth.
constexpr int kDotTile = kGatherTileCount;
constexpr int kDotPixels = 4, kDotChannels = 4, kDotThreads = 256;

// Few columns: a thread holds all of them for several pixels (direct_strip.cuh, fp32 only). `unroll`
// channels of sources are fetched at once; `correction` as in Tile.
struct Strip {
  int columns, pixels, unroll, min_blocks;
  double correction;
};
constexpr Strip kStrips[] = {
    {16, 4, 4, 3, 1.6},
    {4, 8, 4, 3, 2.2},
};
constexpr int kStripCount = sizeof(kStrips) / sizeof(kStrips[0]);
constexpr int kFirstStrip = kDotTile + 1;  // their rows in GatherRow::tile
constexpr int kStripThreads = 128;
constexpr int kStripWeights = 6144;  // of one chunk in shared memory

// Few channels a group, forward, up to `kGroupPhases` phases of w (direct_group.cuh, fp32 only): a
// thread holds all phases of kGroupSlots[phases - 1] positions for `kGroupChannels` channels. The time
// goes into waiting for sources: fewer positions, more blocks and more loads under way were faster than
// twice the positions (kernelbench_1_75 on the H200, 2025-11: 495 us instead of 585).
constexpr int kGroupTile = kFirstStrip + kStripCount;  // its row in GatherRow::tile
constexpr int kGroupPhases = 4, kGroupChannels = 8, kGroupThreads = 128;
constexpr int kGroupSlots[kGroupPhases] = {4, 2, 2, 2};
constexpr int kGroupBlocks[kGroupPhases] = {4, 5, 4, 4};  // an SM must hold
constexpr int kGroupUnroll[kGroupPhases] = {4, 8, 8, 4};  // source channels fetched at once
constexpr int kGroupOffsets = 16;                         // along w that have a tap
constexpr double kGroupCorrection = 1.35;                 // as in Tile
constexpr int kGroupWeights = 7168;                       // of one group in shared memory

// Dynamic shared memory of that kernel: sums on their way out, bias, weights.
constexpr int64_t group_bytes(int64_t phases, int64_t tiles, int64_t depth, int64_t taps) {
  return 4 * kGroupChannels * (kGroupThreads * phases + tiles * (1 + depth * taps));
}

// Dynamic shared memory of a looped tile: the sums of all phases.
constexpr int64_t looped_bytes(const Tile& tile, int64_t phases, bool wide) {
  const int64_t size = wide ? 8 : 4;
  return tile.columns * phases * (tile.rows * size + 16);
}

// Source offsets that any output of the axis needs: first, first + 1, ..., first + count - 1.
struct OffsetRange {
  int64_t first, count;
};

inline OffsetRange forward_offsets(const Axis& axis) {
  const int64_t first = ceil_div(axis.near_pad - (axis.kernel - 1) * axis.dilation, axis.stride);
  const int64_t last_phase = (axis.stride < axis.out ? axis.stride : axis.out) - 1;
  const int64_t last = floor_div(last_phase + axis.near_pad, axis.stride);
  return {first, last < first ? 0 : last - first + 1};
}

// Elements of w; pixels of one of `split` pieces of grad_weight's depth.
int64_t weight_elements(const Problem& problem);
int64_t piece_pixels(int64_t pixels, int32_t split, const Tile& tile);

// The launches behind direct_family. `plan` is obeyed.
void launch_gather(const Problem&, const Plan&, const Args&);
void launch_grad_weight(const Problem&, const Plan&, const Args&);

}  // namespace convt2d::cuda::direct
