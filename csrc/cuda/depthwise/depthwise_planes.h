// NCHW: what one block of each direction owns.
//
// A thread owns `kRun` outputs of one class down a column, in two columns at once. y is the large
// side: it streams between registers and memory, a row of columns a warp. x is the small side: it
// lies in shared memory, transposed, so that a run of rows is a 16-byte read.
#pragma once

#include "cuda/depthwise/depthwise_config.h"

namespace convt2d::cuda::depthwise {

constexpr int kRun = 8;
constexpr int kPair = 2;
constexpr int kPlaneTaps = 4;  // widest tap block; kernels with more taps a class loop over blocks

// Tap block of the kernels: rows and columns share it, so that four kernels are enough. Forward needs
// fewer still: what it would win with small blocks goes through registers, depthwise_strips.h.
inline int plane_taps(const Problem& problem, const ClassAxis& h, const ClassAxis& v) {
  const bool forward = problem.direction == Direction::fwd;
  const int least = !forward ? 1 : element_size(problem.dtype) == 4 ? 3 : 2;
  return std::clamp(std::max(h.taps, v.taps), least, kPlaneTaps);
}

// The part of x that a tile of y reads, staged as columns of positions.
struct StagedX {
  int columns;  // even; the last one holds zeros: it stands in for every column outside x
  int quads;    // groups of 4 positions
  int pitch;    // floats of one column: a multiple of 4, odd in units of 4 against bank conflicts
  int lead;     // positions before the first run: what its outer taps reach back to
  FastDivide by_across, by_quads;  // by_across: column pairs, but not more than threads
};

struct StagedWeights {
  int pitch;  // floats of the taps of one (phase, column)
  int plane;  // floats of one plane; the last one is the bias
  FastDivide by_plane, by_pitch, by_kernel_v;
};

struct PlaneForwardTile {
  int columns;  // of y
  int slots;    // pairs of columns
  int runs;     // of a class
  int planes;
  int task_slots, tasks;  // runs at once; runs of one plane
  int tap_blocks_h, tap_blocks_v;
  int padded_taps;  // 1 if some classes have fewer row taps than the tap blocks
  StagedX x;
  StagedWeights w;
  int shared_bytes;
  int64_t blocks;
  FastDivide by_tiles_v, by_tiles_h, by_reach, by_slots, by_runs, by_phases;
};

struct PlaneGradInputTile {
  int x_columns;
  int columns;  // of y that reach them
  int slots, runs, planes, threads;
  int steps;  // tiles down a plane that a block does one after the other
  int tap_blocks_h, tap_blocks_v;
  StagedWeights w;
  int share_pitch;  // floats of one column of shares: its positions, odd in units of 4
  int shared_bytes;
  int64_t blocks;
  FastDivide by_tiles_v, by_tiles_h, by_reach, by_slots, by_runs, by_x_columns, by_quads;
};

struct PlaneGradWeightTile {
  int columns, slots, runs, images;
  int task_slots;                 // rows of threads
  int phase_slots, phase_groups;  // row phases a block serves at once, and how many such groups
  int run_slots;                  // task_slots / phase_slots
  int tap_blocks_h, tap_blocks_v;
  StagedX x;
  int units, units_a_block, split;  // (images, tile), cut into `split` pieces
  int shared_bytes;
  int64_t blocks;
  FastDivide by_split, by_phase_groups, by_tap_blocks_h, by_tap_blocks_v, by_tiles_v, by_tiles_h,
      by_reach, by_phase_slots, by_runs, by_kernel_v;
};

// Shared memory above kSharedLimit means that the family must decline.
PlaneForwardTile plane_forward_tile(const Problem& problem, const ClassAxis& h, const ClassAxis& v);
PlaneGradInputTile plane_grad_input_tile(const Problem& problem, const ClassAxis& h,
                                         const ClassAxis& v);
PlaneGradWeightTile plane_grad_weight_tile(const Problem& problem, const ClassAxis& h,
                                           const ClassAxis& v);

}  // namespace convt2d::cuda::depthwise
