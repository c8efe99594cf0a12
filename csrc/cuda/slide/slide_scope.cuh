// Where a block of the slide kernel is, and what it walks.
#pragma once

#include "cuda/device/stage_ring.cuh"
#include "cuda/slide/slide_config.h"

namespace convt2d::cuda::slide {

// The channels of a block, and which of the blocks with the same channels it is.
struct Scope {
  int group, column_tile, walker;
};
__device__ __forceinline__ Scope scope_of(const Params& p) {
  const int rest = blockIdx.x / p.column_tiles;
  return {rest % p.groups, static_cast<int>(blockIdx.x) % p.column_tiles, rest / p.groups};
}

// What one stage serves: the first row of positions, and the first position of them.
struct Visit {
  int n, row, sweep;
};

// Calls `visit` with each of a block, sweeps of the same rows one after the other.
template <class Call>
__device__ __forceinline__ void for_visits(const Params& p, const Scope& at, Call&& call) {
  for (int i = at.walker; i < p.items; i += p.walkers) {
    const int n = i / p.row_items, row = p.first_row + (i - n * p.row_items) * p.item_rows;
    for (int sweep = 0; sweep < p.sweeps; ++sweep) call(Visit{n, row, sweep});
  }
}

// So many slots on.
__device__ __forceinline__ void skip(StageRing& ring, int slots) {
  for (ring.index += slots; ring.index >= ring.count; ring.index -= ring.count) ring.parity ^= 1;
}

// What a block walks where it keeps rows of x for those that follow: steps of strips, from top to bottom, in stretches.
struct Stretch {
  int n, strip;
  int first, count;  // steps
};
struct Stretches {
  int step, end;  // of those to come
  Stretch now;    // none: no steps

  template <class SomeParams>
  __device__ __forceinline__ Stretches(const SomeParams& p, const Scope& at) {
    const int64_t all = steps_of(p);
    step = static_cast<int>(all * at.walker / p.walkers);
    end = static_cast<int>(all * (at.walker + 1) / p.walkers);
    advance(p);
  }
  template <class SomeParams>
  __device__ __forceinline__ void advance(const SomeParams& p) {
    const int column = step / p.steps, n = column / p.strips;
    const int first = step - column * p.steps, count = min(p.steps - first, end - step);
    now = {n, column - n * p.strips, first, count};
    step += count;
  }
};

}  // namespace convt2d::cuda::slide
