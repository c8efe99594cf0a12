// mite: all three directions of layers with few channels and few taps.
//
// Such a layer is done in a microsecond or two; what takes the time is the way to it: code that is in no cache, one
// latency of memory after the other. So a block asks for everything it needs at once, weights and a patch of the source,
// keeps it in shared memory as fp32, and has little code that works on it, on the ordinary multiply-add units (TF32 too:
// fp32 is more precise).
//
// Forward and grad_input (mite_gather.cuh): a block has a tile of positions q (core/phases.h) of one image and group, all
// of the source's channels and up to eight columns: destination channels x phases along rows; it goes through the phases
// of rows in turn. Columns are RUNS runs of RUN neighbours in the destination's memory:
//
//   NCHW  a run is a channel's phases
//   NHWC  a run is a phase's channels, or all there is of a position, where that is one piece of memory
//
// Weights lie in a table [kernel row][source channel][slot][column]; a slot is a source offset along the row. Where a
// phase has no tap at an offset, the weight is zero.
//
// grad_weight (mite_weight.cuh): a block has a tile of pixels of x and what of dY they meet. A warp has some input
// channels, one output channel, one kernel row and some of its taps, and goes through all pixels; lanes are pixels. Each
// block writes a piece of partial sums.
#pragma once

#include <cstdint>

#include "core/types.h"
#include "cuda/device/index.cuh"

namespace convt2d::cuda::mite {

// A tile of a tensor in shared memory, planes of fp32. Threads bring lines: rows of a channel, or channels-last, rows of
// pixels with all channels; a thread keeps to a place in a line, and takes every `together`-th of these.
struct Patch {
  const void* from;
  int32_t n, c, h, w;              // strides
  int32_t rows, columns;           // extents of the tensor
  int32_t channels, pitch, plane;  // of the patch
  int32_t lines, line, together;   // how many, numbers of one, and lines at once
  int32_t at, count;               // floats
  FastDivide by_line, by_rows, by_channels;
};

// ---- forward and grad_input ----

struct Form {
  int runs, run;
};
constexpr Form kForms[] = {{1, 1}, {2, 1}, {4, 1}, {8, 1}, {16, 1}, {1, 2},
                           {2, 2}, {4, 2}, {1, 4}, {2, 4}, {1, 8},  {1, 16}};
constexpr int kFormCount = sizeof(kForms) / sizeof(kForms[0]);

constexpr int kThreads = 128;
constexpr int kPositions = 2;  // of a thread
constexpr int kFill = 8;       // numbers of the source that a thread asks for at once
constexpr int kWeights = 4;    // weights of a thread
// Blocks of a multiprocessor that find registers.
CONVT2D_HOST_DEVICE constexpr int blocks_beside(int columns) { return columns > 8 ? 5 : 7; }
constexpr int kMostColumns = 16;
constexpr int kMostPhases = 8;  // of rows
constexpr int kSharedFloats = 12 << 10;

// The taps of a phase of rows, from the first: rows of the patch, rows of the kernel.
struct RowWalk {
  int32_t taps, first_tap, first_row;
};

// Along a row, the tap k has number k * scale + shift, whose quotient and remainder by `by_step` tell slot and phase.
struct TapPlaces {
  FastDivide by_step;
  int32_t scale, shift, first_slot, slot_sign;  // slot: first_slot + slot_sign * quotient
};

struct GatherParams {
  const void *source, *weight;
  const void* bias;  // or null
  void* destination;
  Patch patch;
  int32_t weight_group, weight_reduce, weight_column, weight_h, weight_w;
  int32_t destination_n, destination_c, destination_h, destination_w;
  int32_t run_stride;
  int32_t destination_rows, destination_columns;  // extents
  int32_t positions_h, positions_w;
  int32_t weights;                       // of a block
  int32_t depth, columns, tile_columns;  // channels of a group: source, destination; of a block
  int32_t kernel_h, kernel_w;
  int32_t source_step_h, source_step_w, destination_step_h, destination_step_w;
  int32_t phases_h, phases_w, tap_step, row_step;  // from one tap of a phase of rows to the next
  int32_t first_row, first_column;                 // of the patch, from a tile's first position
  int32_t slots, slot_step;
  int32_t tile_h, tile_w;
  // Columns: channel * place_channel + phase * place_phase.
  int32_t place_channel, place_phase;
  FastDivide by_place;               // the larger of them
  int32_t run_channels, run_phases;  // whether a run is channels, phases, or both
  int32_t whole_runs;                // 1: a run can be stored at once, if all of it exists
  int32_t table_at, bias_at;         // floats
  int32_t shared_bytes, blocks;
  FastDivide by_tile_w, by_tiles_w, by_tiles_h, by_batch, by_column_tiles;
  FastDivide by_kernel_w, by_kernel_h, by_tile_columns;
  TapPlaces taps;
  RowWalk walk[kMostPhases];
};

// ---- grad_weight ----

struct Sums {
  int channels, taps;
};
constexpr Sums kSums[] = {{1, 2}, {1, 4}, {2, 2}, {2, 4}, {4, 2}, {4, 4}};
constexpr int kSumsCount = sizeof(kSums) / sizeof(kSums[0]);

constexpr int kWeightThreads = 512, kWeightWarps = kWeightThreads / 32;
constexpr int kWeightFill = 10;   // numbers that a thread asks for at once
constexpr int kWeightBlocks = 2;  // of a multiprocessor, that find registers

struct WeightParams {
  Patch patch[2];     // x, dY
  int32_t x_threads;  // that bring x
  void* weight;
  float* partials;           // or null: a single piece is dW
  int32_t stride[4];         // of dW
  int32_t first_h, first_w;  // of dY, for pixel 0
  int32_t step_h, step_w, dilation_h, dilation_w;
  int32_t kernel_h, kernel_w, group_in, group_out, in_channels;
  int32_t tile_h, tile_w;
  int32_t items, parts, elements;  // elements: of a group's dW
  int32_t sums_at, shared_bytes;
  int32_t piece_floats, pieces, blocks;
  FastDivide by_tile_w, by_items, by_channel_blocks, by_tap_blocks, by_kernel_h;
  FastDivide by_tiles_w, by_tiles_h, by_pieces;
  FastDivide by_kernel_w, by_group_in, by_group_out;
};

}  // namespace convt2d::cuda::mite
