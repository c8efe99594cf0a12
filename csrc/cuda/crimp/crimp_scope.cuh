// What a block of crimp works on, of any type.
//
// One warp asks the copy engine for the chunks of a block's tiles, in a ring of stages: `full` ends a phase when a stage has
// arrived, `empty` when all warps have multiplied it.
#pragma once

#include "cuda/crimp/crimp_config.h"
#include "cuda/device/barrier.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/start_stages.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/wgmma.cuh"

namespace convt2d::cuda::crimp {

// Output channels of a block, and a strip of an image.
struct Item {
  int image, group, channel;  // the first channel, of the group's
  int column;                 // the first of the strip
  int begin, end;             // rows of x whose outputs are the item's
  int first;                  // row of x
};
// Items side by side have the same pixels; those so many apart as there are of these, the same channels. `width`: columns of one.
__device__ __forceinline__ Item item_of(const Params& p, int index, int width) {
  unsigned rest = index;
  const auto digit = [&rest](const FastDivide& by) {
    const unsigned whole = rest;
    rest = by.quotient(whole);
    return int(whole - rest * by.divisor);
  };
  Item item;
  item.channel = digit(p.by_row_tiles) * p.channels;
  item.group = digit(p.by_groups);
  item.column = digit(p.by_strips) * width;
  item.begin = digit(p.by_segments) * p.segment_rows;
  item.image = int(rest);
  item.end = min(item.begin + p.segment_rows, p.x_h);
  item.first = max(item.begin - 1, 0);
  return item;
}

__device__ __forceinline__ StageRing ring_of(const Params& p, uint32_t shared) {
  return {shared, shared + p.stages_at, p.stages, p.stage_bytes};
}

// Calls ask(ring, item, row of x, chunk, whether it is of the first tile) for all that a block multiplies, when the ring's stage is
// free.
template <class Ask>
__device__ __forceinline__ void for_chunks(const Params& p, uint32_t shared, int width, Ask&& ask) {
  StageRing ring = ring_of(p, shared);
  for (int i = blockIdx.x; i < p.items; i += p.walkers) {
    const Item item = item_of(p, i, width);
    for (int row = item.first; row < item.end; ++row)
      for (int chunk = 0; chunk < p.chunks; ++chunk, ring.advance()) {
        barrier_wait(ring.empty(), ring.parity ^ 1);
        ask(ring, item, row, chunk, i == blockIdx.x && row == item.first);
      }
  }
}

// By all threads.
__device__ __forceinline__ void begin(const Params& p, const Maps& maps, uint32_t shared) {
  start_stages(shared, p.stages, 1, p.teams * 4);
  if (threadIdx.x == p.teams * 128) prefetch_map(&maps.x);
  fence_for_wgmma();  // and for the copy engine
  __syncthreads();
}

}  // namespace convt2d::cuda::crimp
