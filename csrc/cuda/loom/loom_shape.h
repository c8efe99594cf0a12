// A choice of loom's, what the kernel is told of it, and its predicted time. Host arithmetic only.
#pragma once

#include <string>

#include "core/plan.h"
#include "cuda/loom/loom_config.h"

namespace convt2d::cuda::loom {

struct Choice {
  int row;  // of kTiles
  int tile_n, tile_h, tile_w;
  int sets;  // of 64 channels, or 0: 32 channels of two phases of rows
  int layout, own_rows, row_phases;
  int slices, x_stages, turned_stages, weight_stages;  // of weights: 0 if they stay
  int lined, parted, own_tiles;
  int walkers[kMostGroups];
  int walkers_first = 0, rounds = 1;
  int boxed = 0;
};

// Everything but the tensors. Or why the choice does not fit.
std::string shape(const Problem& problem, const Choice& choice, GatherParams& p);
// The same in two steps. In the second are stages but those of weights, walkers, rounds, ways to store, and so all places: what a planner
// asks for again and again.
std::string shape_but_stages(const Problem& problem, const Choice& choice, GatherParams& p);
std::string set_stages(const Choice& choice, GatherParams& p);

// loom_predict.cpp. With the best numbers of blocks, which it leaves in the parameters.
double predict(const Problem& problem, const Device& device, Tile tile, GatherParams& p);
// What is predicted at least, with any stages, weights and ways to store: of a choice's positions, slices and phases.
double least(const Problem& problem, const Device& device, Tile tile, const GatherParams& p);

// How often lanes that fetch weights meet in a bank: words, or 16 bytes by eight lanes at a time; in 16 bits 8 by sixteen.
int most_in_a_bank(int bytes, int row_pitch, int number_pitch);
int unit_bytes(Tile tile, const GatherParams& p);
// Whether what a lane has side by side does not start at multiples of itself.
bool starts_anywhere(const GatherParams& p, Tile tile);
// Whether tiles, or rows of the result, meet within sectors.
bool torn(const GatherParams& p, Tile tile);

}  // namespace convt2d::cuda::loom
