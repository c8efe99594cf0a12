// The scroll kernel; scroll_config.h draws the tiling. A thread for each warpgroup asks for its rows (scroll_stage.cuh):
// `full` ends a phase when a row has come, `empty` when all four warps have multiplied it.
#pragma once

#include <type_traits>

#include "cuda/scroll/scroll_stage.cuh"
#include "cuda/scroll/scroll_store.cuh"
#include "cuda/scroll/scroll_widths.cuh"

namespace convt2d::cuda::scroll {

template <int ROW>
using Sums = float[columns_of(kTiles[ROW]) / 2];

// All products of a row of x in `stage`. `pixels`, `weights`: descriptors of the first kernel column's in stage 0.
template <class T, int ROW, int SLICES>
__device__ __forceinline__ void multiply_row(const Params& p, const Taps& taps, uint64_t pixels,
                                             uint64_t weights, Sums<ROW>& sum) {
  const uint32_t product = columns_of(kTiles[ROW]) * p.line >> 4, tap = taps.shift * p.line >> 4,
                 chunk = (p.chunk_bytes >> 4) - (taps.count - 1) * tap;
  int left = taps.count;
#pragma unroll 1
  for (int i = taps.count * p.chunks; i > 0; --i) {
    wgmma_fence();
#pragma unroll
    for (int slice = 0; slice < SLICES; ++slice)
      Wgmma<T, columns_of(kTiles[ROW])>::add(sum, advance(pixels, slice * (kSliceBytes >> 4)),
                                             advance(weights, slice * (kSliceBytes >> 4)));
    wgmma_commit();
    --left;
    pixels = advance(pixels, left ? tap : chunk);
    left = left ? left : taps.count;
    weights = advance(weights, product);
    wgmma_wait<1>();
  }
  wgmma_wait<0>();
  finished(sum);
}

template <class T, int ROW, int SLICES>
__device__ __forceinline__ void follow_strips(const Params& p, const Scope& at, int group,
                                              uint32_t shared) {
  constexpr Tile tile = kTiles[ROW];
  constexpr int kUp = tile.step * tile.width / 2;  // sums of a thread that are complete
  const Taps& taps = p.taps[at.phase];
  StageRing ring = ring_of(p, shared, group);
  const uint64_t layout = swizzled_layout(p.line, (p.eights ? p.pixels : 8) * p.line),
                 weights = operand(swizzled_layout(p.line, 8 * p.line), shared + p.weights_at);
  Descent part(p, at, group);
  while (part.next(p, tile)) {
    const Places places = places_of(p, tile, at, part);
    Sums<ROW> sum;
#pragma unroll
    for (float& each : sum) each = 0;
#pragma unroll 1
    for (int row = part.row; row < part.last; ++row) {
      if (row >= 0 && row < p.x_h && taps.count > 0) {
        barrier_wait(ring.full(), ring.parity);
        multiply_row<T, ROW, SLICES>(p, taps, operand(layout, ring.stage()), weights, sum);
        __syncwarp();
        if (threadIdx.x % 32 == 0) barrier_arrive(ring.empty());
        ring.advance();
      }
      if (row >= part.first) store_rows<T, ROW>(p, at, places, shared + kBiasAt, row, sum);
#pragma unroll
      for (int i = 0; i < columns_of(tile) / 2; ++i)
        sum[i] = i + kUp < columns_of(tile) / 2 ? sum[min(i + kUp, columns_of(tile) / 2 - 1)] : 0;
    }
  }
}

template <class T, int ROW>
__global__ void __launch_bounds__(threads(kTiles[ROW].groups), 1)
    convt2d_scroll_kernel(const __grid_constant__ Params p,
                          const __grid_constant__ CUtensorMap map) {
#ifdef CONVT2D_HAS_WGMMA
  extern __shared__ __align__(1024) unsigned char smem[];
  constexpr Tile tile = kTiles[ROW];
  const uint32_t shared = shared_address(smem);
  const Scope at = scope_of(p);
  const int warp = warp_of_block(), consumers = 128 * p.warpgroups;
  if (threadIdx.x == consumers) {
    prefetch_map(&map);
    for (int i = 0; i < tile.groups * kMostStages; ++i) {
      barrier_init(shared + i * 16, 1);
      barrier_init(shared + i * 16 + 8, 4);
    }
    fence_for_wgmma();  // for the copy engine
  }
  __syncthreads();
  if (warp >= consumers / 32) {
    fewer_registers<kProducerRegisters>();
    const int group = warp - consumers / 32;
    if (group < p.warpgroups && threadIdx.x % 32 == 0)
      bring_rows(p, tile, map, at, group, ring_of(p, shared, group));
  } else {
    more_registers<consumer_registers(tile)>();
    const bool finite = bring_all_weights<T, ROW>(p, at, shared);
    bring_bias<T, ROW>(p, at, shared);
    fence_for_wgmma();
    const bool all_finite = barrier_all(1, consumers, finite);
    const int group = warp / 4;
    if (p.slices == 4) {
      follow_strips<T, ROW, 4>(p, at, group, shared);
    } else if (p.slices == 3) {
      follow_strips<T, ROW, 3>(p, at, group, shared);
    } else if (p.slices == 2) {
      follow_strips<T, ROW, 2>(p, at, group, shared);
    } else {
      follow_strips<T, ROW, 1>(p, at, group, shared);
    }
    if (!all_finite) {
      barrier_among(2 + group, 128);  // what the others have stored
      repair<T, ROW>(&p, at, group);
    }
  }
#endif
}

}  // namespace convt2d::cuda::scroll
