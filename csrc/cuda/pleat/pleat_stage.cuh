// Items, and the products of a tile: from global memory through a ring of stages into sums.
#pragma once

#include "cuda/device/barrier.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/pleat/pleat_config.h"

namespace convt2d::cuda::pleat {

// 16 output channels, and blocks of rows of an image.
struct Item {
  int image, group, channel;  // the first channel, of the group's
  int begin, end;             // blocks whose outputs are the item's
  int first, end_row;         // rows of x
};
// Items side by side have the same pixels.
template <int ROW>
__device__ __forceinline__ Item item_of(const Params& p, int index) {
  unsigned rest = index, next = p.by_row_tiles.quotient(rest);
  Item item;
  item.channel = int(rest - next * p.by_row_tiles.divisor) * kBlockChannels;
  rest = next, next = p.by_groups.quotient(rest);
  item.group = int(rest - next * p.by_groups.divisor);
  rest = next, next = p.by_segments.quotient(rest);
  const int segment = int(rest - next * p.by_segments.divisor);
  item.image = int(next);
  item.begin = segment * p.segment_rows;
  item.end_row = min(item.begin + p.segment_rows, p.x_h);
  item.end = item.end_row == p.x_h ? p.x_h + 1 : item.end_row;
  item.first = max(item.begin - (is_flat(ROW) ? p.early_rows : 1), 0);
  return item;
}

// Where a strip starts in x, and which columns of y are its own, from its first pixel's first one on.
struct Strip {
  int pixel, begin, end;
};
__device__ __forceinline__ Strip strip_of(const Params& p, int index) {
  const int first = index * kStrip;
  Strip strip;
  strip.pixel = min(first, p.x_w - kStrip);
  strip.begin = index == 0 ? p.pad_w : (first - strip.pixel) * kStride;
  strip.end = index + 1 == p.strips ? p.y_w + p.pad_w - strip.pixel * kStride : kStrip * kStride;
  return strip;
}

__device__ __forceinline__ StageRing ring_of(const Params& p, uint32_t shared) {
  return {shared, shared + kStagesAt, p.stages, p.stage_bytes};
}

template <int ROW>
__device__ __forceinline__ void bring(const Params& p, const Maps& maps, uint32_t shared) {
  constexpr bool kStrips = has_strips(ROW);
  StageRing ring = ring_of(p, shared);
  const int depth = p.slices * kSlice, line = depth * kLine;
  const int tile = is_flat(ROW) ? p.tile_rows : tile_rows(eights_of(ROW));
  for (int i = blockIdx.x; i < p.items; i += p.walkers) {
    const Item item = item_of<ROW>(p, i);
    int filled = 0;  // stages, by the item
    for (int strip = 0; strip < (kStrips ? p.strips : 1); ++strip)
      for (int row = item.first; row < item.end_row; row += tile)
        for (int chunk = 0; chunk < p.chunks; ++chunk, ring.advance()) {
          const bool weights = !kStrips || filled++ < p.fresh;
          barrier_wait(ring.empty(), ring.parity ^ 1);
          barrier_expect(ring.full(), weights ? p.stage_bytes : p.x_bytes);
          uint32_t to = ring.stage();
#pragma unroll
          for (int box = 0; box < kPixels / kLineNumbers; ++box, to += line)
            if constexpr (kStrips) {
              copy_box(to, &maps.x, ring.full(), strip_of(p, strip).pixel, row + box, chunk * depth,
                       item.image * p.groups + item.group);
            } else if constexpr (is_flat(ROW)) {
              const bool second = box > 0 && p.images > 1;
              copy_box(to, &maps.x, ring.full(), row * p.x_w + (second ? 0 : box * kLineNumbers),
                       chunk * depth, item.group, item.image * p.images + second);
            } else {
              copy_box(to, &maps.x, ring.full(), row * eights_of(ROW) * 8 + box * kLineNumbers,
                       chunk * depth, item.group, item.image);
            }
          if (!weights) continue;
#pragma unroll
          for (int group = 0; group < kGroups; ++group, to += line)
            copy_box(to, &maps.w, ring.full(), (item.channel + group * kGroupChannels) * kTaps,
                     chunk * depth, item.group, 0);
        }
  }
}

template <class T, int SLICES, int NUMBERS>
__device__ __forceinline__ void multiply_slices(float (&sum)[1][NUMBERS], uint64_t w, uint64_t x) {
  wgmma_fence();
#pragma unroll
  for (int slice = 0; slice < SLICES; ++slice)
    WgmmaTurned<T, NUMBERS * 2>::add(sum[0], advance(w, slice * (kSlice * kLine >> 4)),
                                     advance(x, slice * (kSlice * kLine >> 4)));
  wgmma_commit();
}

// The products of a tile.
template <class T, int NUMBERS>
__device__ __forceinline__ void multiply(const Params& p, int group, StageRing& ring,
                                         float (&sum)[1][NUMBERS]) {
  const int line = p.slices * kSlice * kLine;
  const uint64_t layout = turned_layout(kLine, line);
  clear(sum);
  uint32_t before = 0;  // `empty` of the stage whose products are under way
#pragma unroll 1
  for (int chunk = 0; chunk < p.chunks; ++chunk, ring.advance()) {
    barrier_wait(ring.full(), ring.parity);
    const uint64_t x = operand(layout, ring.stage()),
                   w = operand(layout, ring.stage() + p.x_bytes + group * line);
    // Each branch commits: behind them the compiler would add an empty instruction, and wait for that.
    if (p.slices == kMostSlices) {
      multiply_slices<T, kMostSlices>(sum, w, x);
    } else if (p.slices == 2) {
      multiply_slices<T, 2>(sum, w, x);
    } else {
      multiply_slices<T, 1>(sum, w, x);
    }
    if (before) {
      wgmma_wait<1>();
      if (threadIdx.x % 32 == 0) barrier_arrive(before);
    }
    before = ring.empty();
  }
  wgmma_wait<0>();
  if (threadIdx.x % 32 == 0) barrier_arrive(before);
  finished(sum[0]);
}

}  // namespace convt2d::cuda::pleat
