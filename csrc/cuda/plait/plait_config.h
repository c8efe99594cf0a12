// plait: what one block computes, and the numbers it is told.
//
// A GEMM of grad_input in 16-bit NCHW whose K is (channel of dY, tap) in the order of the weights in memory:
//
//   dx[ci][position] = sum over k of w[ci][k] * dY[channel of k][what tap of k reads at position]
//
// Rows are input channels: weights come as they lie, by the copy engine, or, where a row of K is no whole 16 bytes, are
// laid alike by the warps that sort, once. Columns are positions, eights of a row of x one after the other, of all rows
// and images: an eight is 16 bytes of shared memory for each k, and what is beside the end of a row is nobody's. The copy
// engine brings the rows of dY that a tile's positions meet, raw, several chunks of K ahead (plait_raw.cuh). Eight warps
// sort them: a lane loads what a kernel row's taps at an eight of positions read of a row, which is a run, from a multiple
// of 16 bytes on, and sorts it in registers by tap. The tensor core takes such columns as they are (the turned layout of
// wgmma.cuh).
//
//   raw stage  dY       [segment][channel of the chunk][row][...], or of runs [channel][segment], each number where it is
//                       among 16 bytes in memory
//   stage      weights  [row][64 of K], swizzled, unless all of them stay
//              dY       [half][64 positions][64 of K][128 B], swizzled
//
// Two warpgroups multiply, of 64 channels and 256 positions an instruction. `Form`: what they share.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "core/types.h"
#include "cuda/device/index.cuh"

namespace convt2d::cuda::plait {

// wide: 128 channels, a half of 64 for each warpgroup, the same positions. twice: 64 channels, 512 positions, half of
// them for each. turns: 64 channels; warpgroups take tiles of 256 positions by turns, so that one stores while the
// other multiplies, and weights stay.
enum Form : int32_t { kWide = 0, kTwice = 1, kTurns = 2 };
constexpr int kForms = 3;

constexpr int kRows = 64, kColumns = 256;               // of an instruction
constexpr int kEight = 8, kEights = kColumns / kEight;  // positions
constexpr int kDepth = 64, kSlice = 16;                 // of K: of a chunk, of an instruction
constexpr int kBlock = 64;                              // positions of 128 bytes
constexpr int kAtomBytes = 8 * 128, kBlockBytes = kDepth / 8 * kAtomBytes,
              kHalfBytes = kColumns / kBlock * kBlockBytes, kWeightRow = kDepth * 2,
              kWeightBytes = kRows * kWeightRow;
constexpr int kGroups = 2, kConsumers = 128 * kGroups, kBringers = 256,
              kBringWarps = kBringers / 32, kThreads = kConsumers + kBringers;
// Warps that sort are teams, which take chunks of K by turns.
constexpr int kTeams = 2, kTeamWarps = kBringWarps / kTeams;
// Registers of a thread; together those that a multiprocessor has.
constexpr int kConsumerRegisters = 160, kBringerRegisters = 96;
static_assert(kConsumers * kConsumerRegisters + kBringers * kBringerRegisters == 65536);
constexpr int kMostStages = 8, kMostRawStages = 4, kLeastRawStages = 2;
static_assert(kMostRawStages <= kBringWarps);  // each asks for one at first

// How raw dY comes. A segment is what a tile has of an image, or of a strip of one, row by row. planes: all channels of a
// chunk at once, where a segment is most of an image; runs: of each channel as many whole rows as are read; boxes: a segment
// at once, where rows are whole 16 bytes. loaded: not at all, the warps that sort load it (plait_load.cuh).
enum Raw : int32_t { kPlanes = 0, kRuns = 1, kBoxes = 2, kLoaded = 3 };

// Kernel rows and steps along a row of x that are served. `lead`: elements between a multiple of 16 bytes and what the
// first tap reads, where that is the same everywhere; those come before the others.
struct Taps {
  int kernel, step;
  int lead = -1;
};
constexpr Taps kTaps[] = {{1, 1, 0}, {2, 2, 0}, {3, 2, 7}, {4, 2, 7}, {9, 2, 4}, {1, 1}, {2, 2},
                          {3, 2},    {4, 2},    {5, 2},    {3, 3},    {5, 3},    {4, 4}, {9, 2}};
constexpr int kTapKinds = sizeof(kTaps) / sizeof(kTaps[0]);
// Kernels of 4 x 4 with step 2 x 2, where 64 positions are of one row of x, or of the same row of a few images whose short
// rows lie beside each other, and four such rows of a strip a tile's half:
// what two kernel rows read of dY, the other two read for the row above. So rows of dY are written out once, two by two:
// [channel of a chunk][pair of rows][its eight taps][128 B].
constexpr int kPairedTaps = 4, kPairedStep = 2, kPairedRows = kColumns / kBlock,
              kPairs = kPairedRows + 1, kPairedChannels = kDepth / 16,
              kPairedSlice = kPairs * kAtomBytes;
// What they read for eight positions: elements; vectors of 16 bytes, wherever they start; words.
CONVT2D_HOST_DEVICE constexpr int span_of(Taps taps) {
  return (kEight - 1) * taps.step + taps.kernel;
}
CONVT2D_HOST_DEVICE constexpr int vectors_of(Taps taps) {
  return (span_of(taps) + (taps.lead < 0 ? 7 : taps.lead) + 7) / 8;
}
CONVT2D_HOST_DEVICE constexpr int words_of(Taps taps) { return (span_of(taps) + 1) / 2; }
// Rows of (channel, kernel row) that a chunk of K touches, at most; and those that a lane has under way, a batch.
CONVT2D_HOST_DEVICE constexpr int chunk_rows(Taps taps) {
  return kDepth % taps.kernel == 0 ? kDepth / taps.kernel : (kDepth - 1) / taps.kernel + 2;
}
CONVT2D_HOST_DEVICE constexpr int batch_of(Taps taps, bool paired) {
  return !paired && vectors_of(taps) == 1               ? 4
         : vectors_of(taps) > 4 || taps.kernel > kEight ? 1
                                                        : 2;
}

// Everything a block needs, passed by value. 32-bit element offsets: larger tensors are declined.
struct Params {
  const void* source;  // dY
  const void* weight;
  const void* bias;  // none
  void* destination;
  int32_t weight_group, weight_reduce, weight_column, weight_h, weight_w;  // strides
  int32_t batch, groups, reduce, columns;                                  // channels of a group
  int32_t x_h, x_w, y_h, y_w;
  int32_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h;
  int32_t kind;                       // of kTaps
  int32_t form, sets, halves, turns;  // sets of 64 channels; halves of 256 positions
  int32_t column_tiles, tiles, walkers;
  int32_t strips,
      strip_eights;  // of a row of x: where it is whole blocks, these are strips of their own
  int32_t beside,
      row_eights;  // images in a strip, where rows are paired and short; of a row of one
  int32_t eights;  // of all
  int32_t copied;  // kernels one wide, whose rows the copy engine brings as they lie
  int32_t paired, block_bytes, slice_bytes, half_bytes;  // of dY in a stage
  int32_t depth, chunks;                                 // K; chunks of it
  int32_t uneven;    // K is no multiple of 8: weights, which stay, are no rows for the copy engine
  int32_t bytes;     // of dY
  int32_t taps;      // of a kernel
  int32_t resident;  // weights stay
  int32_t stages, stage_bytes, weights_at, stages_at, shared_bytes;
  int32_t store_vectors, store_words;  // rows of x are whole 16 bytes; whole words
  int32_t raw, raw_stages, raw_at, raw_stage_bytes, raw_segment_bytes;
  int32_t raw_channel,
      raw_row;  // bytes from one to the next; but for a multiple of 16, those in memory
  int32_t raw_rows, raw_channels;  // of a segment, at most
  int32_t raw_box_bytes;
  FastDivide by_strip_eights, by_x_h, by_strips, by_kernel_h, by_taps, by_beside, by_row_eights;
};

// What the copy engine is told.
struct Maps {
  CUtensorMap weight, source;  // the latter if rows are copied, or come raw as boxes
};

CONVT2D_HOST_DEVICE int tile_channels(const Params& p) { return kRows * p.sets; }
CONVT2D_HOST_DEVICE int tile_eights(const Params& p) { return kEights * p.halves; }
CONVT2D_HOST_DEVICE int weight_bytes(const Params& p) { return kWeightBytes * p.sets; }
// Of K, that the tensor core multiplies: whole slices.
CONVT2D_HOST_DEVICE int depth_multiplied(const Params& p) {
  return (p.depth + kSlice - 1) / kSlice * kSlice;
}
CONVT2D_HOST_DEVICE int chunk_end(const Params& p, int chunk) {
  const int end = (chunk + 1) * kDepth, all = depth_multiplied(p);
  return end < all ? end : all;
}

// Barriers: `full` and `empty` of each stage, and of each raw stage; of weights that stay. Zeros, as many as a lane reads.
constexpr int kRawBarriers = kMostStages * 16, kResidentAt = kRawBarriers + kMostRawStages * 16,
              kZerosAt = kResidentAt + 16, kZeros = 96, kHeader = kZerosAt + kZeros;

}  // namespace convt2d::cuda::plait
