// NCHW with y, or dY, in registers: what one thread and one block own.
//
// A lane owns a piece of y, 16 bytes of a row or a stride of columns, whichever is more, and walks down
// the rows of one phase, or of both where the stride is 2; it knows all products that its piece is in.
// grad_input keeps sums of the columns of x that the piece reaches, and hands those of its neighbours over
// once a row. In the other directions what the neighbours have of x comes from them: forward keeps the
// weights, grad_weight their sums.
#pragma once

#include <array>

#include "cuda/depthwise/depthwise_config.h"

namespace convt2d::cuda::depthwise {

constexpr int kLaneThreads = 256;  // of a block, at most

// Kernels of up to `taps` strides, padded with half of what is more than one stride, as most layers are.
struct LaneKernel {
  int stride, taps;
};

constexpr std::array<LaneKernel, 5> kLaneKernels{{{2, 1}, {2, 2}, {2, 3}, {4, 2}, {8, 2}}};

// Columns of dY that a lane owns.
CONVT2D_HOST_DEVICE constexpr int lane_columns(int stride, int element_bytes) {
  return 16 / element_bytes > stride ? 16 / element_bytes : stride;
}

// Row phases of a thread; the others are other threads', and shared memory adds up what becomes of them.
CONVT2D_HOST_DEVICE constexpr int lane_phases(int stride) { return stride == 2 ? 2 : 1; }

// Steps that loads are ahead of sums: 32 registers' worth.
CONVT2D_HOST_DEVICE constexpr int lane_depth(int stride, int element_bytes) {
  return 32 * 4 / (lane_phases(stride) * lane_columns(stride, element_bytes) * element_bytes);
}

struct LaneTile {
  int lanes;     // pieces of a row side by side, within a warp
  int lead;      // of those, the first that are another tile's: there for what they hand over
  int step;      // pieces of the tile's own
  int segments;  // of a warp: rows of lanes
  int slots;     // units at once
  int rows;      // steps of a unit, but for the first ones, which only fetch what comes before
  int strips;    // units of a plane
  int units;     // (image, strip)
  int rounds;    // units of a slot
  int split;     // pieces that the units are cut into (times tiles)
  int tiles;     // along a row
  int64_t part_floats;  // of a piece's sums of the weights
  int threads, shared_bytes;
  int64_t blocks;
  FastDivide by_lanes, by_tiles, by_channels, by_strips, by_steps, by_places;
};

// Index of the kernel that serves a problem, -1 if none does.
int lane_kernel(const Problem& problem);

LaneTile lane_tile(const Problem& problem, const LaneKernel& kernel);

}  // namespace convt2d::cuda::depthwise
