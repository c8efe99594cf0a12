// NHWC: what one block of each direction owns.
//
// A thread owns `vector` neighbouring channels of kPixels outputs of one class along a row. Neighbouring
// threads own neighbouring channels, so every access is coalesced straight from memory; the weights of
// the block's channels lie in shared memory as [tap][channel].
#pragma once

#include "cuda/depthwise/depthwise_config.h"

namespace convt2d::cuda::depthwise {

constexpr int kPixels = 4;
constexpr int kPixelTaps = 3;  // widest tap block

// Channels a thread owns when pointers are aligned: 16 bytes; fewer in grad_weight, whose registers go to
// the taps. 1 where the channels do not divide, or a group has several outputs (forward: more than two).
constexpr int wide_vector(bool gather, int64_t element_bytes) {
  return gather ? int(16 / element_bytes) : 4;
}

inline int pixel_vector(const Problem& problem) {
  const int wide =
      wide_vector(problem.direction != Direction::grad_weight, element_size(problem.dtype));
  const int most = problem.direction == Direction::fwd ? 2 : 1;  // outputs a channel
  return problem.group_out() <= most && problem.out_channels % wide == 0 ? wide : 1;
}

// Kernel rows that the forward sums at once: what its registers hold.
CONVT2D_HOST_DEVICE constexpr int pixel_rows(int taps, int vector) {
  return taps == kPixelTaps && vector > 1 ? 1 : taps;
}

// Single channels always take the widest block: they are the fallback, not worth three kernels.
inline int pixel_taps(const Problem& problem, const ClassAxis& h, const ClassAxis& v, int vector) {
  const int taps = problem.direction == Direction::grad_input ? v.taps : std::max(h.taps, v.taps);
  return vector == 1 ? kPixelTaps : std::min(taps, kPixelTaps);
}

// Weights of a slice of channels, [row][column][channel].
struct StagedSlice {
  int columns;   // of w, padded to whole tap blocks with zeros
  int channels;  // of the block
  int pitch;
  FastDivide by_columns, by_channels;
};

struct PixelForwardTile {
  int lanes;        // vectors of channels a block
  int rows;         // output rows of one phase
  int runs, items;  // of a class; (vector, run) pairs of one row
  int row_slots;    // rows at once
  int tap_blocks;
  int tap_rows;     // of a class, in whole groups of what is summed at once
  int padded_taps;  // 1 if some classes have fewer taps along w than the tap blocks
  StagedSlice w;
  int shared_bytes;
  int64_t blocks;
  FastDivide by_slices, by_phases, by_row_groups, by_items, by_lanes, by_period;
};

struct PixelGradInputTile {
  int lanes;
  int runs, items;  // runs a residue; items of one image
  int sharers;      // threads that split the kernel rows of one item
  int block_items;
  int tap_blocks;
  int weight_rows;  // of w, staged at a time
  StagedSlice w;
  int shared_bytes;
  int64_t blocks;
  FastDivide by_slices, by_item_blocks, by_lanes, by_residues, by_runs;
};

struct PixelGradWeightTile {
  int channels, lanes;
  int runs;
  int classes;  // (tap block, row phase, column phase)
  int class_slots, class_groups, item_slots;
  int tap_blocks_h, tap_blocks_v;
  int units, units_a_block, split;  // (image, output row of a phase)
  int row_runs;                     // runs of one unit
  int shared_bytes;
  int64_t blocks;
  FastDivide by_split, by_class_groups, by_lanes, by_class_slots, by_phases_v, by_phases_h,
      by_tap_blocks_v, by_row_runs, by_rows, by_runs;
};

PixelForwardTile pixel_forward_tile(const Problem& problem, const ClassAxis& h, const ClassAxis& v,
                                    int vector);
PixelGradInputTile pixel_grad_input_tile(const Problem& problem, const ClassAxis& h,
                                         const ClassAxis& v, int vector);
PixelGradWeightTile pixel_grad_weight_tile(const Problem& problem, const ClassAxis& h,
                                           const ClassAxis& v, int vector);

}  // namespace convt2d::cuda::depthwise
