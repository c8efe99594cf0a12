// NCHW forward without shared memory for x: what one thread and one block own.
//
// A thread owns `run` neighbouring outputs of a row, 16 bytes where rows are aligned to that, else one,
// in strip_rows() rows of one row class or two. The x under them is a small window that it loads into registers
// once and uses for every tap. Its weights stay in registers while it walks down the plane, and on to
// the same plane of the next image.
#pragma once

#include <array>

#include "cuda/depthwise/depthwise_config.h"

namespace convt2d::cuda::depthwise {

constexpr int kStripThreads = 256;

CONVT2D_HOST_DEVICE constexpr int strip_rows(int run) { return run == 1 ? 8 : 4; }

// Blocks a multiprocessor whose registers must suffice. Measured: more threads are worth some spills,
// except where windows are wide.
constexpr int strip_blocks(int run, int span, int taps) {
  if (run == 1) return 4;
  if (span == 1 || taps > 2) return 2;
  return run == 4 && span == 4 ? 4 : 3;
}

// How far into its column's phases a run starts in a centred layer.
CONVT2D_HOST_DEVICE constexpr int strip_past(int span, int taps) {
  return taps % 2 == 0 ? span / 2 : 0;
}

// One kernel. Output i of a run is fed from column i / span on or from the next one: `span` is the
// stride, or `run` for every larger stride. Kernels with fewer taps a class are padded with zeros.
struct StripKernel {
  int run, span, taps;
};

template <int element_bytes>
constexpr auto strip_kernels() {
  if constexpr (element_bytes == 4) {
    return std::array<StripKernel, 7>{
        {{4, 1, 3}, {4, 1, 5}, {4, 2, 2}, {4, 2, 3}, {4, 4, 2}, {1, 1, 2}, {1, 1, 3}}};
  } else {
    return std::array<StripKernel, 9>{{{8, 1, 3},
                                       {8, 1, 5},
                                       {8, 2, 1},
                                       {8, 2, 2},
                                       {8, 2, 3},
                                       {8, 4, 1},
                                       {8, 4, 2},
                                       {8, 8, 2},
                                       {4, 2, 2}}};
  }
}

// Index of the kernel that serves a forward, -1 if none does. `largest_run`: what the alignment of y
// allows.
int strip_kernel(const Problem& problem, const ClassAxis& h, const ClassAxis& v, int largest_run);

// Whether the layer is centred, given the elements at whose multiples every row of x starts.
bool strip_centred(const ClassAxis& h, const ClassAxis& v, const StripKernel& kernel, int x_unit);

struct StripTile {
  int groups;   // runs side by side
  int classes;  // row classes of a block, in pairs where a thread serves two
  int slots;    // strips down a column at once
  int threads;
  int strips;  // of one class of a plane
  int units;   // (image, strip)
  int units_a_block;
  int table_pitch;  // floats of the weights of one class
  int shared_bytes;
  int64_t blocks;
  FastDivide by_columns, by_class_groups, by_channels, by_groups, by_classes, by_strips;
};

StripTile strip_tile(const Problem& problem, const ClassAxis& h, const ClassAxis& v,
                     const StripKernel& kernel, bool centred);

}  // namespace convt2d::cuda::depthwise
