// How many blocks share the tiles of a group of phases. The device's side is walker_scope.cuh.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cuda/gather_params.h"

namespace convt2d::cuda {

// Blocks for each combination, so that the grid fills the device once: groups of phases get them by their cost.
template <class Params>
void set_walkers(const Device& device, const std::vector<double>& cycles, Params& p) {
  const int64_t tiles = tiles_of(p);
  int64_t blocks = device.sm_count / (combinations(p) / p.h.groups) - p.h.groups;
  std::fill_n(p.walkers, p.h.groups, 1);
  for (; blocks > 0; --blocks) {
    const auto time = [&](int g) { return ceil_div(tiles, p.walkers[g]) * cycles[g]; };
    int busiest = 0;
    for (int g = 1; g < p.h.groups; ++g)
      if (time(g) > time(busiest)) busiest = g;
    if (p.walkers[busiest] == tiles) break;
    ++p.walkers[busiest];
  }
}

template <class Params>
int64_t walking_blocks(const Params& p) {
  int64_t walkers = 0;
  for (int g = 0; g < p.h.groups; ++g) walkers += p.walkers[g];
  return int64_t{p.groups} * p.column_tiles * walkers;
}

}  // namespace convt2d::cuda
