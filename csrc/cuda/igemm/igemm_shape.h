// From a Problem to the numbers of the gather kernel; shared by the planner and the launcher.
#pragma once

#include <string>

#include "core/plan.h"
#include "core/problem.h"
#include "cuda/igemm/igemm_config.h"

namespace convt2d::cuda::igemm {

// A choice of tile: what Plan.row and Plan.detail carry.
struct GatherChoice {
  int row;                     // of kTiles
  int warps;                   // of a block
  int tile_n, tile_h, tile_w;  // positions
  int slice_shift;             // log2 of the 32-byte slices in a chunk
  int stages;                  // source patches in shared memory
  int resident;                // weights of all chunks stay in shared memory
  int walkers;                 // blocks (or clusters) that share a combination
  int ranks;                   // blocks of a cluster that share the reduction
  int teams;                   // of warps that share it in a block
  int tap_rows;                // rows of taps in a unit of the reduction; 0: all
  int folded;                  // rows of taps stand for channels (fold)
};

// Whether a reduction is shared out in any of these ways.
inline bool is_shared(const GatherChoice& c) {
  return c.ranks > 1 || c.teams > 1 || c.tap_rows || c.folded;
}

// grad_input reads a window of y for every position. Where windows have no padding, a row of taps, or more, is a
// run of numbers in y and in w alike; the same sums with such runs for channels have wide loads and long chunks
// where channels are few.
struct Fold {
  Problem problem;  // its y_layout is nhwc: one pixel stands for a run
  int64_t source_stride[4], weight_h;
  int64_t outer, outer_source, outer_weight;  // channels that a run does not cover
};
bool fold(const Problem& problem, Fold& folded);

// Everything of GatherParams that follows from the problem and the choice, pointers and strides aside.
// Returns why it cannot be done, or an empty string.
std::string gather_shape(const Problem& problem, const GatherChoice& choice, GatherParams& params);

// The part of it that the tile does not depend on: how K is cut, and what stays in shared memory.
void set_depth(const Problem& problem, const GatherChoice& choice, GatherParams& params);

}  // namespace convt2d::cuda::igemm
