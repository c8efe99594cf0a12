// NHWC along rows of y, or dY: what one thread and one block own.
//
// A thread owns 8 bytes of channels and walks along the columns, so that every pixel it has loaded is
// multiplied with all that meets it. grad_input: some rows of x, of which it sums one row phase of dY,
// or both where the stride is 2; weights lie in shared memory, and each serves all of the rows.
// The other directions: two row phases by two column phases, whose weights, or their sums, stay in
// registers; pixels of x slide.
#pragma once

#include "cuda/depthwise/depthwise_config.h"

namespace convt2d::cuda::depthwise {

constexpr int kWalkThreads = 256;  // of a block of grad_input, at most
constexpr int kSquareWalkThreads =
    384;  // of grad_weight, one block a multiprocessor: the more, the fewer sums go to memory
constexpr int kMostWalkTaps = 3;

CONVT2D_HOST_DEVICE constexpr int walk_vector(int element_bytes) { return 8 / element_bytes; }

// Rows of x of a thread.
CONVT2D_HOST_DEVICE constexpr int walk_rows(int taps) { return taps < 3 ? 4 : 2; }

struct WalkInputTile {
  int taps, phases;     // of the kernel
  int spread;           // threads that share the row phases of an x
  int channels, lanes;  // of a block
  int items;            // runs of rows at once
  int columns;          // of x
  int kernel;           // taps along an axis, counting those that do not exist
  int pitch;            // floats of a tap's weights
  int threads, shared_bytes;
  int64_t blocks;
  FastDivide by_lanes, by_spread, by_column_runs, by_row_groups, by_slices, by_kernel, by_places;
};

struct WalkSquareTile {
  int taps;
  int channels, lanes;
  int classes, slots;  // (two row phases, two column phases); runs of positions at once
  int rows, columns;   // of positions: strides of dY
  int positions, run;  // of all images; of a slot
  int split;           // pieces that the positions are cut into
  int threads, shared_bytes;
  int64_t part_floats;  // of a piece's sums
  int64_t blocks;
  FastDivide by_lanes, by_classes, by_half_stride, by_slices, by_rows, by_columns;
};

// Whether walks serve a problem.
bool walks_serve(const Problem& problem);

WalkInputTile walk_input_tile(const Problem& problem);
WalkSquareTile walk_square_tile(const Problem& problem);

}  // namespace convt2d::cuda::depthwise
