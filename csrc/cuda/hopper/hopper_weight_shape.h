// From a Problem to the numbers of the grad_weight kernel; shared by the planner and the launcher.
#pragma once

#include <string>

#include "core/problem.h"
#include "cuda/hopper/hopper_weight_config.h"

namespace convt2d::cuda::hopper {

// A choice of tile: what Plan.row, Plan.split and Plan.detail carry.
struct WeightChoice {
  int row;                            // of kWeightTiles
  int x_blocks, y_blocks, unit_taps;  // see WeightParams
  bool shared;                        // planes, by all taps they can serve
  int tile_n, tile_h, tile_w;
  int stages;
  int split;  // pieces of the reduction
};

// Everything of WeightParams that follows from the problem and the choice, pointers and strides aside. Returns why
// it cannot be done, or an empty string.
// `spooled`: tensors are copies whose pixels are whole 16 bytes, whatever their channels are (cuda/spool).
std::string weight_shape(const Problem& problem, const WeightChoice& choice, WeightParams& params,
                         bool spooled = false);

// Blocks' worth of dW; tiles_of() says how many tiles of K.
int64_t weight_combinations(const WeightParams& params);

// Bytes of the pixels that taps meet, each once, and of dW.
double read_bytes(const Problem& problem);

// What the copy engine has to know.
WeightMaps weight_maps(const WeightParams& params, const void* x, const void* y);

}  // namespace convt2d::cuda::hopper
