// From a Problem to the numbers of the gather kernel; shared by the planner and the launcher.
#pragma once

#include <string>

#include "core/plan.h"
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
};

// Everything of GatherParams that follows from the problem and the choice, pointers and strides aside.
// Returns why it cannot be done, or an empty string.
std::string gather_shape(const Problem& problem, const GatherChoice& choice, GatherParams& params);

}  // namespace convt2d::cuda::igemm
