// What a block of the narrow kernel walks.
#pragma once

#include "cuda/narrow/narrow_config.h"

namespace convt2d::cuda::narrow {

// First image, stretch, and rows of the destination.
struct Item {
  int n, sweep, row, rows;
};

// Calls `visit` with each of a block. Blocks side by side have stretches side by side, whose edges they share.
template <class Params, class Visit>
__device__ __forceinline__ void for_items(const Params& p, Visit&& visit) {
  for (int i = blockIdx.x; i < p.items; i += p.walkers) {
    const int rest = p.by_sweeps.quotient(i), n = p.by_row_items.quotient(rest);
    const int row = p.first_row + (rest - n * p.row_items) * p.item_rows;
    visit(Item{n * p.images, i - rest * p.sweeps, row, min(p.item_rows, p.end_row - row)});
  }
}

}  // namespace convt2d::cuda::narrow
