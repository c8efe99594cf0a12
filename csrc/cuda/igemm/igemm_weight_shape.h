// From a Problem to the numbers of the grad_weight kernel; shared by the planner and the launcher.
#pragma once

#include <string>

#include "core/plan.h"
#include "cuda/igemm/igemm_weight_config.h"

namespace convt2d::cuda::igemm {

// A choice of tile: what Plan.row, Plan.split and Plan.detail carry.
struct WeightChoice {
  int row;                     // see weight_tile()
  int warps_m;                 // warps along input channels
  int taps_h, taps_w, octets;  // of a block
  int tile_n, tile_h, tile_w;  // pixels of a K tile
  int producers;               // warps that bring tiles in
  int stages;                  // K tiles in shared memory
  int split;                   // pieces of the reduction
};

// Everything of WeightParams that follows from the problem and the choice, pointers and strides aside.
// Returns why it cannot be done, or an empty string.
std::string weight_shape(const Problem& problem, const WeightChoice& choice, WeightParams& params);

// Whether there are partial sums.
bool writes_partials(const WeightParams& params);

// Instructions of one lane that bring one number in; how many of the producers bring in x.
double carrying_cost(int mode, int run, int element_bytes);
int x_producers(const WeightParams& params, int element_bytes);

// Blocks' worth of dW; tiles_of() says how many tiles of K.
int64_t weight_combinations(const WeightParams& params);

}  // namespace convt2d::cuda::igemm
