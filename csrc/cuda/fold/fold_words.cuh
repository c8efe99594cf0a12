// fold of words: TF32, or strict fp32 as three TF32 products. wgmma wants rows of them along K.
//
// Weights stay as they lie: a lane fetches what it holds of the first operand. x is turned in place, a region of 8 channels
// x 32 pixels by a warp (device/turn_regions.cuh).
//
// So K has the even channels of a region first. Lanes that fetch channels 2 t then meet no bank twice. Flat tiles have the
// pixels of a line in another order, for a lane to end up with four neighbours.
#pragma once

#include "cuda/device/barrier.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/strict_product.cuh"
#include "cuda/device/turn_regions.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/fold/fold_scope.cuh"

namespace convt2d::cuda::fold {

// Sums of a thread.
template <int ROW>
using Sums = float[kTiles[ROW].row_blocks][kTiles[ROW].width / 2];

// Everything that a block multiplies.
template <int ROW>
__device__ __forceinline__ void turn_tiles(const Params& p, const Scope& at, StageRing& ring) {
  constexpr Tile tile = kTiles[ROW];
  const int lane = threadIdx.x % 32,
            warp = threadIdx.x / 32 - (threads(kTiles[ROW]) / 32 - kHelpers);
  const int pixel = p.flat ? lane / 16 * 16 + lane % 8 / 2 * 4 + lane / 8 % 2 * 2 + lane % 2 : lane;
  const uint32_t bytes = x_bytes(p, tile);
  for_tiles(p, at, [&](const Item&, int) {
    for (int chunk = 0; chunk < p.chunks; ++chunk, ring.advance()) {
      barrier_wait(ring.full(), ring.parity);
      for (uint32_t from = warp * 2 * kRegion; from < bytes; from += kHelpers * 2 * kRegion)
        turn_regions<tile.strict>(ring.stage() + from, bytes, pixel * 4);
      fence_for_wgmma();
      __syncwarp();
      if (lane == 0) barrier_arrive(helped_barrier(ring));
    }
  });
}

// Where a lane finds its words of the first region of a chunk's weights: of both rows, channels 2 t and 2 t + 1.
template <int ROW>
using Places = uint32_t[kTiles[ROW].row_blocks][2][2];
template <int ROW>
__device__ __forceinline__ void find_weights(const Params& p, const Scope& at, Places<ROW>& place) {
  constexpr Tile tile = kTiles[ROW];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, channel = lane % 4 * 2;
  const int row_group = threadIdx.x / 128 / parts(tile);
#pragma unroll
  for (int b = 0; b < tile.row_blocks; ++b)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = lead(p, first_channel(p, tile, at, 0)) +
                      (row_group * tile.row_blocks + b) * p.row_channels * taps(p) + warp * 16 +
                      half * 8 + lane / 4;
      const int line = row / line_numbers(4), inside = row % line_numbers(4) * 4;
#pragma unroll
      for (int odd = 0; odd < 2; ++odd)
        place[b][half][odd] =
            (line * p.depth + channel + odd) * kLine + (inside ^ (channel + odd) << 4);
    }
}

template <int ROW>
using Words = uint32_t[kTiles[ROW].row_blocks][4];
template <int ROW>
__device__ __forceinline__ void fetch_weights(Words<ROW>& word, const Places<ROW>& place,
                                              uint32_t region) {
#pragma unroll
  for (int b = 0; b < kTiles[ROW].row_blocks; ++b)
#pragma unroll
    for (int i = 0; i < 4; ++i) word[b][i] = load_shared_4(region + place[b][i % 2][i / 2]);
}

// Multiplies a chunk of SLICES x 8 channels. The words of a slice stay until it is multiplied, two slices later. `issued`:
// once what was issued before this chunk is finished.
template <int ROW, int SLICES, class Issued>
__device__ __forceinline__ void multiply_chunk(Sums<ROW>& sum, const Places<ROW>& place,
                                               uint32_t weights, uint64_t x, Issued&& issued) {
  constexpr Tile tile = kTiles[ROW];
  Words<ROW> word[2];
#pragma unroll
  for (int slice = 0; slice < SLICES; ++slice) {
    fetch_weights<ROW>(word[slice % 2], place, weights + slice * kRegion);
    wgmma_fence();
#pragma unroll
    for (int b = 0; b < tile.row_blocks; ++b)
      WgmmaFetched<float, tile.width>::add(
          sum[b], word[slice % 2][b], advance(x, slice * tile_lines(tile, 4) * (kRegion >> 4)));
    wgmma_commit();
    wgmma_wait<1>();
    if (slice == 0) issued();
  }
}

// The same in strict fp32.
template <int ROW, int SLICES>
__device__ __forceinline__ void multiply_strict(Sums<ROW>& sum, const Places<ROW>& place,
                                                uint32_t weights, uint64_t x, uint32_t low_bytes) {
  constexpr Tile tile = kTiles[ROW];
  Words<ROW> high[SLICES], low[SLICES];
#pragma unroll
  for (int slice = 0; slice < SLICES; ++slice) {
    fetch_weights<ROW>(high[slice], place, weights + slice * kRegion);
#pragma unroll
    for (int b = 0; b < tile.row_blocks; ++b)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        MmaF32x3::split(high[slice][b][i], high[slice][b][i], low[slice][b][i]);
  }
  add_strict<tile.width>(sum, high, low, x, tile_lines(tile, 4) * (kRegion >> 4), low_bytes >> 4);
}

// The products of a tile.
template <int ROW>
__device__ __forceinline__ void multiply_words(const Params& p, uint32_t shared,
                                               const Places<ROW>& place, StageRing& ring,
                                               Sums<ROW>& sum) {
  constexpr Tile tile = kTiles[ROW];
  const uint64_t layout = operand_layout(kLine, 2 * kLine);
  const uint32_t part = threadIdx.x / 128 % parts(tile) * (tile.width / line_numbers(4)) * kRegion;
  const bool speaks = threadIdx.x % 32 == 0;
  clear(sum);
  uint32_t previous = 0;
#pragma unroll 1
  for (int chunk = 0; chunk < p.chunks; ++chunk, ring.advance()) {
    barrier_wait(ring.full(), ring.parity);
    barrier_wait(helped_barrier(ring), ring.parity);
    const uint32_t stage = ring.stage();
    const uint32_t weights = p.resident ? shared + p.weights_at + chunk * weight_bytes(p, tile)
                                        : stage + x_bytes(p, tile) + low_bytes(p, tile);
    const uint64_t x = operand(layout, stage + part);
    if constexpr (tile.strict) {
      if (p.depth == 4 * kRegionChannels) {
        multiply_strict<ROW, 4>(sum, place, weights, x, low_bytes(p, tile));
      } else {
        multiply_strict<ROW, 2>(sum, place, weights, x, low_bytes(p, tile));
      }
      if (speaks) barrier_arrive(ring.empty());
    } else {
      const auto issued = [&] {
        if (speaks && chunk > 0) barrier_arrive(previous);
      };
      if (p.depth == 4 * kRegionChannels) {
        multiply_chunk<ROW, 4>(sum, place, weights, x, issued);
      } else {
        multiply_chunk<ROW, 2>(sum, place, weights, x, issued);
      }
      previous = ring.empty();
    }
  }
  if constexpr (!tile.strict) {
    wgmma_wait<0>();
    if (speaks) barrier_arrive(previous);
  }
#pragma unroll
  for (int b = 0; b < tile.row_blocks; ++b) finished(sum[b]);
}

}  // namespace convt2d::cuda::fold
