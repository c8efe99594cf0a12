// loom: what one block computes, and the numbers it is told.
//
// An implicit GEMM, the mirror image of fan's: rows are channels of the result, columns are positions (core/phases.h), of
// one phase of a row or of two:
//
//   sums[phase][co][position] += w[co][ci][tap] * x[ci][position + offset(tap)]     for each tap of the phase
//
// A step is a slice of 8 channels, of 16 bits 16, times a tap: one instruction of 64 channels x 256 or 128 positions. Warps
// that multiply fetch its weights to registers, as they lie in memory; the pixels lie in shared memory in rows of 16 bytes of
// channels, where a tap is an address.
//
//   weights   a ring, or all of them, as the copy engine brings them. Forward  [box of out][channel in][channel out, tap],
//             grad_input  [slice][channel out][channel in, tap]; the last axis is `pitch` words long, which the host chooses
//             so that lanes that fetch eight channels out times four in meet no bank twice: boxes overlap. Of 16 taps in fp32
//             [two channels out][channel in][128 B], swizzled, a box without overlap (`woven`). Of kernel rows of
//             16 bytes of which a phase has some: these alone  [kernel row][channel out][channel in][16 B], boxes of 4
//             channels in more than needed, for the same end; if they stay, those of all chunks in one. Of four
//             taps in 16 bits, where rows of it are whole 128 bytes, forward has these  [128 B][channel in], swizzled
//   copied    a ring of patches of the source, as they lie  [image][channel][row][pixel]; where rows are no whole 16 bytes,
//             but two or four of a plane are, and a plane, or two or four of them, in words
//             [plane of these][image][channel][row][pixel], of rows that start alike, up to three words too early, a stage for
//             each set of them; where they are not, of batches in which each lane finds what it brought itself; in 16 bits
//             [plane of a pair][row][channel][pixel], rows that start too early, by what their place in a plane, or in two
//             that follow each other, leaves over
//   turned    a ring  [slice][four channels][plane][image][row][pixel][16 B]; where a step of positions is several
//             pixels, as in grad_input, pixels and rows are sorted into planes by the remainder of their place; or a patch comes
//             in as many `parts`, the rows of one remainder each, and a chunk of weights stays for all of them
//
// Strict fp32 (`strict`): every number is the sum of two that the tensor core takes, so a product is three
// (device/strict_product.cuh). Warps that multiply split weights in their registers; those that turn patches write pixels as
// two, a slice's high parts and, behind these, what is left of them. Products of up to four steps are summed apart, a batch
// of one phase or of two by turns, so columns are half as many.
//
// Two warpgroups multiply: two sets of 64 channels for the same positions, or two sets of positions for the same channels,
// or two phases of rows of the same positions and channels, which share operands and write rows that are neighbours. Of up
// to 32 channels the rows of an instruction are those of two phases of rows (`halved`), each in two warps of a group; where
// only one of them has a tap the others multiply zeros. Where there is one phase of rows, as in grad_input, these are every
// other row of the result.
// Or weights that stay are laid out once as the tensor core reads them (`laid`, loom_laid.cuh), a matrix of 64 rows for each
// step  [step][slice][half][row][16 B], so that nobody fetches: an instruction costs its warps a few additions, and one
// warpgroup alone keeps the tensor core busy. Then each warpgroup has tiles of its own (`own_tiles`), which follow each other
// in the rings: one multiplies a tile, then the other the next one, and what it has to store goes to memory meanwhile; or
// each has a phase of rows of the same tile, and is as far ahead as the rings are long.
// Of four other warps one asks the copy engine for both operands, three turn patches, and bring them where it cannot.
//
// Columns of an instruction are eights of neighbouring pixels, equally far apart. In runs they follow each other, from row
// to row of a patch, and what they cover beyond a row of the tile is not stored; or each is a row of a tile that is 8 wide,
// or 16 with the two warpgroups side by side.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "core/types.h"
#include "cuda/gather_axes.h"

namespace convt2d::cuda::loom {

constexpr int kGroups = 2, kConsumers = 128 * kGroups, kThreads = kConsumers + 128;
// In 16 bits those who turn spill what 72 do not hold, and those who multiply want no more than 208.
CONVT2D_HOST_DEVICE constexpr int consumer_registers(int element_bytes) {
  return element_bytes == 2 ? 208 : 216;
}
CONVT2D_HOST_DEVICE constexpr int producer_registers(int element_bytes) {
  return element_bytes == 2 ? 88 : 72;
}
constexpr int kTurners = 3;  // warps

constexpr int kRows = 64;      // of an instruction: channels
constexpr int kColumns = 256;  // of a group: positions of all phases
constexpr int kStrictColumns = 128;
constexpr int kSliceBytes = 32;  // channels of an instruction: 8 of TF32, 16 of 16 bits
constexpr int kEight =
    8;  // channels out, which boxes of weights have one or more of; pixels of a core matrix
constexpr int kMostRow = 256;  // words of a box
constexpr int kMostTaps = kMostRow * 4 / kSliceBytes;
constexpr int kMostGroups = 4;    // of phases, by their rows; and such phases
constexpr int kMostSteps = 56;    // what there is room for; of two phases some taps are the same
constexpr int kMostRuns = 8;      // of steps: phases of rows times parts
constexpr int kMostWeights = 40;  // stages of weights
constexpr int kMostLaid = 200 * 1024;  // bytes of laid weights
constexpr int kMostRing = 8;           // stages of patches
constexpr int kMostRounds = 64;        // of blocks
constexpr int kMostSlices = 4;         // of a chunk
constexpr int kBatch = 4;              // runs of 32 pixels that a warp brings together
constexpr int kBatches = 3;            // batches of which it has room: all but one are on their way
constexpr int kBatchBytes = kBatch * 32 * kSliceBytes;
// Outputs of a channel that a warp lays out at once, where rows of the result start anywhere; bytes, of eight channels.
constexpr int kLine = 64, kLineBytes = kEight * kLine * 4;
// Outputs that a warp lays out for the copy engine: 16 channels of the rows of a tile in columns, of two phases of 16 bits;
// bytes.
constexpr int kBoxRow = 2 * kEight * 2, kBoxChannels = 16, kBoxLine = kBoxChannels * kBoxRow,
              kBoxBytes = kColumns / 2 / kEight * kBoxLine;

// Phases of a row of the result, and taps of a kernel row that a lane fetches at once: these are of phases by turns.
struct Tile {
  int phases, taps;
  bool strict = false;  // fp32 as it is, not TF32
  bool laid = false;    // weights are, and nobody fetches them
};
constexpr Tile kTiles[] = {{1, 1},
                           {2, 1},
                           {1, 3},
                           {2, 3},
                           {1, 4},
                           {2, 4},
                           {1, 1, false, true},
                           {2, 1, false, true},
                           {1, 1, true},
                           {1, 3, true},
                           {2, 3, true},
                           {1, 4, true},
                           {2, 4, true}};
constexpr int kMostFetched = 4;
constexpr int kTileCount = sizeof(kTiles) / sizeof(kTiles[0]), kFirstStrict = 8;
static_assert(kTiles[kFirstStrict].strict && !kTiles[kFirstStrict - 1].strict);

CONVT2D_HOST_DEVICE constexpr int slice_of(int element_bytes) {
  return kSliceBytes / element_bytes;
}
CONVT2D_HOST_DEVICE constexpr int positions(Tile tile) {
  return (tile.strict ? kStrictColumns : kColumns) / tile.phases;
}
// Steps that are multiplied at once, where a chunk has them: in strict fp32 four taps of a phase.
CONVT2D_HOST_DEVICE constexpr int batch_steps(Tile tile) {
  return !tile.strict ? 1 : tile.taps == 1 ? 4 : tile.taps == 3 && tile.phases == 2 ? 2 : 1;
}

// Fetches ahead of the one that is multiplied: two, where registers allow it, since one may take longer than its products. (Of two
// phases they do not: kernelbench_2_2 took 1147 us for 922, while 1_65 of one phase took 1230 for 1341.)
CONVT2D_HOST_DEVICE constexpr int fetched_ahead(Tile tile) {
  return tile.strict || tile.laid || tile.taps == 4 || tile.phases == 2 ? 1 : 2;
}

// How laid weights of 16 bits store, each tile in the way that was faster: of one phase in lines, of two what lanes have.
CONVT2D_HOST_DEVICE constexpr bool laid_lines(Tile tile) { return tile.phases == 1; }

// Weights that come in segments: 128 bytes of each channel in, as the copy engine swizzles them. Longer rows, which have to
// start 16 bytes further into shared memory each, take it twice the time (148 words of 32 channels: 1645 cycles for 37888 bytes,
// by all blocks from L2; 256 words, at multiples of 128 bytes: 848 for 65536; H200, 2026-11-26).
constexpr int kSegmentShift = 7, kSegment = 1 << kSegmentShift;

// Laid weights: a slice of a step is a matrix, whose halves of K lie behind each other.
constexpr int kHalfMatrix = kRows * 16, kMatrix = 2 * kHalfMatrix;

// Where the columns of a group are: see above.
enum Columns : int32_t { kRuns, kStacked, kBeside };

// A tap, or the first of so many of a kernel row: where its pixels are, in units of 16 bytes from a position's; where its
// weights are, in bytes from a lane's, and above that its phase, if it is one tap; kNoTap: zeros.
struct Step {
  uint32_t pixel, weights;
};
constexpr int kPhaseShift = 16;
constexpr uint32_t kNoTap = 1u << 31;

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
  int32_t tile_n, tile_h, tile_w;     // positions of a tile
  int32_t tiles_n, tiles_h, tiles_w;  // tiles of the position grid
  int32_t tile_channels, column_tiles;
  int32_t layout;
  // Blocks for each combination of group and column tile, by the group of phases.
  int32_t walkers[kMostGroups];
  int32_t slices, chunks;  // of a chunk; chunks of K
  int32_t row_phases;  // of a block, of rows of the result: if two, each warpgroup has one of them,
  int32_t
      halved;  // or half of its warps, which find zeros, where a phase has no tap, in so many words
  int32_t zeros;
  int16_t first_step[kMostRuns + 1];  // of phases of rows, and of each of them the parts
  Step step[kMostSteps];
  uint32_t column[kMostFetched];  // from the pixels of a step to those of its taps
  int32_t swapped;                // the first of these is of phase 1

  // Patches: loaded rows and pixels; pixels as they are copied; planes along both axes, rows and pixels of one.
  int32_t load_h, load_w, copied_h, copied_w, steps_h, steps_w, plane_h, plane_w;
  int32_t plane_units;  // of 16 bytes
  int32_t items;        // pixels that are turned, of a stage of patches, for each channel
  // 16 bits: eights of a row; how many tables of items, one for each place in 16 bytes where a tile may start, and how far
  // apart these are, its logarithm; items of a table.
  int32_t octets, tables, lead_shift, table_items;
  // So many planes, of neighbouring channels, are whole 16 bytes, where rows are not; or 0. In 16 bits patches then come row by
  // row.
  int32_t lines;
  // Words: rows of a plane that are whole 16 bytes together, a power of two and which; stages that a part comes in, each of
  // every so many-th row; from row to row of these, in `period` rows; from plane to plane, and all that is copied, in bytes.
  int32_t period, period_shift, row_sets, set_step, set_bytes, copied_bytes;
  // Of four channels that follow each other, where they are, and from these to the next four; bytes.
  int32_t word_place[4], word_far;
  int32_t line_bytes;  // a copied row of all channels that are as far apart
  // 16 bits, where the second half of K is copied: items further on, and bytes; bytes to the next slice.
  int32_t second_items, second_bytes, next_bytes;
  int32_t row_start;                         // words: rows are copied from multiples of so many on
  int32_t channel_words, x_stages, x_bytes;  // of copied patches
  int32_t half_bytes, turned_slice, turned_stages, turned_bytes;  // of turned ones
  int32_t column_pitch, beside;  // from eight to eight, from group to group; bytes

  // Weights, bytes: from set to set of 64 channels, from two warps to two, warp to warp, lane to lane by its row and by its
  // number of K; to the row eight further on, and to the second half of K; of a slice. Rows of a box, in forward.
  int32_t set_pitch, two_warps_pitch, warp_pitch, row_pitch, number_pitch, far_row, far_number,
      slice_pitch;
  int32_t taps, pitch, box_step, box_rows, box_bytes, weight_stages, weight_bytes, all_weights;
  int16_t resident;
  int16_t own_rows;        // of a kernel, those of the phase alone
  int32_t woven;           // kernels of 64 bytes: [two channels out][channel in][128 B], swizzled
  int32_t weight_barrier;  // bytes, from stage to stage: 0 where all come at once
  int32_t items_at, weights_at, x_at, turned_at, lines_at, zeros_at, shared_bytes;
  int32_t brought;  // patches are, by the warps that turn them
  int32_t forward;
  int32_t strict;
  int32_t lined;  // outputs go to memory by way of shared memory
  // Blocks of a combination are neighbours: there are more than run at once. Blocks start in so many rounds, of as many tiles.
  int16_t walkers_first, rounds;
  int32_t parts;      // of a patch
  int32_t own_tiles;  // of a warpgroup
  // Laid weights: from step to step, and from set to set of 64 channels, bytes; where it says to which step a tap belongs;
  // of a phase of rows, the first step of the second phase, or of the second half.
  int32_t laid, laid_step, laid_set, laid_at;
  int16_t middle[kMostGroups];
  // Weights in segments: bytes of one, or 0; of a place, what is in one. From a lane's channel in to the second one of its word:
  // what changes of an address, and bytes further on.
  int32_t segment_bytes;
  uint32_t segment_mask, flip;
  int32_t far_channel;
  int32_t boxed;  // outputs go to memory by the copy engine
};

// What the copy engine is told.
struct TensorMaps {
  CUtensorMap source, weight, destination;
};

// Stages of what is read at once: one that is multiplied, the one before, which is given back later, and what is fetched; of
// turned patches, and of weights, which stay for all parts of one.
inline int least_stages(Tile tile, const GatherParams& p, int parts) {
  const int runs = p.h.groups * p.row_phases * p.parts;
  for (int run = 0; run < runs; run += parts)
    if ((p.first_step[run + parts] - p.first_step[run]) * p.slices == 1 && fetched_ahead(tile) > 1)
      return 3;
  return 2;
}
inline int least_turned(Tile tile, const GatherParams& p) { return least_stages(tile, p, 1); }
inline int least_weights(Tile tile, const GatherParams& p) {
  return least_stages(tile, p, p.parts);
}

// In front: barriers of the stages of patches, of turned ones, of weights, of the warpgroups' turns; the scope of the block and its tiles; the positions of a tile.
constexpr int kXBarriers = 0, kTurnedBarriers = kXBarriers + kMostRing * 16,
              kWeightBarriers = kTurnedBarriers + kMostRing * 16,
              kTurns = kWeightBarriers + kMostWeights * 16, kScope = kTurns + kGroups * 8,
              kWalk = kScope + 16, kPositions = kWalk + 16,
              kHeader = kPositions + kGroups * kColumns * 4;

}  // namespace convt2d::cuda::loom
