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
  if (p.h.groups == 1) {
    p.walkers[0] += static_cast<int32_t>(std::clamp<int64_t>(blocks, 0, tiles - 1));
    return;
  }
  std::vector<double> time;  // of each group
  for (int g = 0; g < p.h.groups; ++g) time.push_back(tiles * cycles[g]);
  for (; blocks > 0; --blocks) {
    const auto busiest = std::max_element(time.begin(), time.end()) - time.begin();
    if (p.walkers[busiest] == tiles) break;
    time[busiest] = ceil_div(tiles, ++p.walkers[busiest]) * cycles[busiest];
  }
}

template <class Params>
int64_t walking_blocks(const Params& p) {
  int64_t walkers = 0;
  for (int g = 0; g < p.h.groups; ++g) walkers += p.walkers[g];
  return int64_t{p.groups} * p.column_tiles * walkers;
}

}  // namespace convt2d::cuda
