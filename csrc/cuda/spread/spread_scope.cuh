// What a block of the spread kernel walks.
#pragma once

#include "cuda/spread/spread_config.h"

namespace convt2d::cuda::spread {

// First row of all images', first pixel of a stretch, first output channel and how many of them.
struct Item {
  int row, sweep, pixel, channel, channels;
};

// Calls `visit` with each of a block. Blocks side by side have the same pixels.
template <class Visit>
__device__ __forceinline__ void for_items(const Params& p, Visit&& visit) {
  for (int i = blockIdx.x; i < p.items; i += p.walkers) {
    const int rest = i / p.column_blocks, tile = rest / p.sweeps;
    const int sweep = rest - tile * p.sweeps,
              channel = (i - rest * p.column_blocks) * p.block_channels;
    visit(Item{tile * p.tile_rows, sweep, sweep * p.step - p.lead, channel,
               min(p.block_channels, p.columns - channel)});
  }
}

// Which image a row belongs to, and which of its rows it is; before the first image there is none.
struct Row {
  int n, row;
};
__device__ __forceinline__ Row row_of(const Params& p, int row) {
  if (row < 0) return {-1, 0};
  const int n = p.by_image_rows.quotient(row);
  return {n, row - n * p.image_rows};
}

template <class T>
constexpr bool is_word = sizeof(T) == 4;

}  // namespace convt2d::cuda::spread
