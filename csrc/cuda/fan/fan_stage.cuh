// The producers: one thread asks the copy engine for patches of x and for weights, three warps turn these.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/barrier.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/fan/fan_scope.cuh"

namespace convt2d::cuda::fan {

struct Rings {
  StageRing x, raw, turned;
};
__device__ __forceinline__ Rings rings_of(const GatherParams& p, uint32_t shared) {
  return {{shared + kXBarriers, shared + p.x_at, p.x_stages, p.x_bytes},
          {shared + kRawBarriers, shared + p.raw_at, p.raw_stages, p.raw_bytes},
          {shared + kTurnedBarriers, shared + p.turned_at, p.turned_stages, p.turned_bytes}};
}

__device__ __forceinline__ void copy(const GatherParams& p, const Scope& at, const TensorMaps& maps,
                                     Rings& rings) {
  const int low_h = p.h.group[at.group_h].offset_low;
  bool weights = true;
  for_tiles(p, at, [&](TileOrigin origin) {
    for (int chunk = 0; chunk < p.chunks; ++chunk) {
      const int channel = at.group * p.reduce + chunk * p.slices * kSlice;
      if (weights) {
        barrier_wait(rings.raw.empty(), rings.raw.parity ^ 1);
        barrier_expect(rings.raw.full(), p.raw_bytes);
        const int first = at.column_tile * p.tile_channels * p.taps;
        uint32_t to = rings.raw.stage();
        for (int i = 0; i < p.tile_channels; i += kEight, to += p.box_bytes)
          copy_box(to, &maps.weight, rings.raw.full(), first + i * p.taps, channel, 0, 0);
        rings.raw.advance();
      }
      barrier_wait(rings.x.empty(), rings.x.parity ^ 1);
      barrier_expect(rings.x.full(), p.x_bytes);
      copy_box(rings.x.stage(), &maps.source, rings.x.full(), first_column(p, origin) & ~3, channel,
               origin.h + low_h, origin.n);
      rings.x.advance();
    }
    weights = !p.resident;
  });
}

// Weights of a chunk, from rows that follow each other in memory to columns of 16 bytes. A lane takes four channels of a
// tap of one of eight columns; lanes of the same column begin at different taps, where kernels of an even number of them
// would meet a bank again.
__device__ __forceinline__ void turn_chunk(const GatherParams& p, uint32_t shared, uint32_t from,
                                           uint32_t to) {
  const int lane = threadIdx.x % 32, turner = threadIdx.x / 32 - kConsumers / 32 - 1;
  const int column = lane % kEight, rotation = p.taps % 2 ? 0 : column * p.taps / 32 * 4;
  const int eights = p.tile_channels / kEight, units = p.slices * 2 * eights;
  const int row_bytes = kEight * p.taps * 4;  // of a channel in
  const int bytes = tap_bytes(p.tile_channels);
  for (int unit = turner; unit < units; unit += kTurners) {
    const int fours = unit / eights, eight = unit - fours * eights;  // of channels in, and out
    const uint32_t mine = from + eight * p.box_bytes + fours * 4 * row_bytes + column * p.taps * 4;
    const uint32_t there = to + fours / 2 * p.slice_bytes + eight * tap_bytes(kEight) +
                           fours % 2 * (kEight * 16) + column * 16;
    // Two at a time: what is loaded is some 30 cycles on its way.
    for (int first = lane / kEight; first - lane / kEight < p.taps; first += 8) {
      uint32_t word[2][4];
      int place[2];
#pragma unroll
      for (int two = 0; two < 2; ++two) {
        const bool tapped = first + two * 4 < p.taps;
        int tap = tapped ? first + two * 4 + rotation : 0;
        if (tap >= p.taps) tap -= p.taps;
        place[two] = tapped ? int(load_shared_4(shared + kPlaces + tap * 4)) : -1;
#pragma unroll
        for (int k = 0; k < 4; ++k) word[two][k] = load_shared_4(mine + tap * 4 + k * row_bytes);
      }
#pragma unroll
      for (int two = 0; two < 2; ++two)
        if (place[two] >= 0) store_shared_16(there + place[two] * bytes, word[two]);
    }
  }
}

__device__ __forceinline__ void turn(const GatherParams& p, const Scope& at, uint32_t shared,
                                     Rings& rings) {
  bool weights = true;
  for_tiles(p, at, [&](TileOrigin) {
    for (int chunk = 0; weights && chunk < p.chunks; ++chunk) {
      barrier_wait(rings.turned.empty(), rings.turned.parity ^ 1);
      barrier_wait(rings.raw.full(), rings.raw.parity);
      turn_chunk(p, shared, rings.raw.stage(), rings.turned.stage());
      fence_for_wgmma();
      __syncwarp();
      if (threadIdx.x % 32 == 0) {
        barrier_arrive(rings.raw.empty());
        barrier_arrive(rings.turned.full());
      }
      rings.raw.advance();
      rings.turned.advance();
    }
    weights = !p.resident;
  });
}

}  // namespace convt2d::cuda::fan
