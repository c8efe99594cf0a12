// What a tile of hopper takes: by counting, and by what was measured.
#pragma once

#include "cuda/hopper/hopper_shape.h"

namespace convt2d::cuda::hopper {

// Microseconds, of the best shares, which it leaves in the parameters.
double predict(const Problem& problem, const Device& device, GatherParams& p, TileRow tile);
// What no choice with this tile is predicted to take less than, with over_of(); of parameters from tile_shape(), which it fills.
double least(const Problem& problem, const Device& device, GatherParams& p, TileRow tile);
// The same of choices with these positions and slices, all of whose weights stay in the parameters.
double least_of_depth(const Problem& problem, const Device& device, GatherParams& p, TileRow tile);
// The same of fetched rows of TF32, NCHW (hopper_predict_words.cpp), whose shares are in the parameters.
double predict_words(const Problem& problem, const Device& device, const GatherParams& p,
                     TileRow tile, bool at_least = false);
// Of the tiles, those whose patches lie in the source altogether.
double tiles_inside(const GatherParams& p);
// What a kind of tile takes over that: for all to compare with, and for other families alone.
double over_of(const Problem& problem, TileRow tile, const GatherParams& p);
double over_for_others(const Problem& problem, TileRow tile);

// By how many products the first groups may lead.
int lead_of(const Problem& problem, const GatherParams& p, TileRow tile);

}  // namespace convt2d::cuda::hopper
