// How three warps of a reel's blocks turn slices, tile by tile (spool_reel.cuh).
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/barrier.cuh"
#include "cuda/device/counters.cuh"
#include "cuda/device/tensor_store.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/spool/spool_config.h"

namespace convt2d::cuda::spool {

// A warp's tiles to be turned, slice after slice.
struct ReelWalk {
  int slice, unit, buffer;
};
// Where one is: its first channel, pixel and image of the slice, of the first tensor or the second.
struct ReelPlace {
  int channel, pixel, image;
  bool second;
};
__device__ __forceinline__ ReelPlace place_of(const ReelParams& r, int unit) {
  const bool second = unit >= r.first_units;
  const Turned& t = r.tensor[second];
  const int number = second ? unit - r.first_units : unit;
  const int rest = r.by_channels[second].quotient(number);
  const int image = r.by_pixels[second].quotient(rest);
  return {(number - rest * t.channel_blocks) * kReelSide,
          (rest - image * t.pixel_blocks) * kReelSide, image, second};
}

// Turns a tile where it is, by a warp. Of its 8 x 8 squares of 8 x 8 numbers, (i, i ^ k) and (i ^ k, i) change places.
__device__ __forceinline__ void turn_tile(uint32_t tile) {
  const int lane = threadIdx.x % 32, row = lane % 8;
  uint32_t from[2], to[2];  // in the tile
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int i = half * 4 + lane / 8;
    from[half] = (half * 32 + lane) * 128 + ((i ^ row) << 4);
    to[half] = i * 1024 + row * 128 + ((i ^ row) << 4);
  }
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    uint32_t word[2][4];
#pragma unroll
    for (int half = 0; half < 2; ++half) load_tiles(tile + (from[half] ^ k << 4), word[half]);
#pragma unroll
    for (int half = 0; half < 2; ++half) store_turned(tile + (to[half] ^ k << 10), word[half]);
  }
}

// Each warp has tiles of its own, two of them: one comes or leaves while the other is turned.
__device__ __forceinline__ void turn_slices(const ReelParams& r, const ReelMaps& maps,
                                            uint32_t tiles) {
  constexpr int kWarps = kReelThreads / 32;
  const int warp = threadIdx.x % 128 / 32 - 1, all_warps = r.blocks * kWarps;
  const int first = blockIdx.x * kWarps + warp, images = r.tensor[0].images;
  const int mine = first < r.units ? (r.units - first + all_warps - 1) / all_warps : 0;
  const int all = mine * r.slices;
  const bool speaker = threadIdx.x % 32 == 0;
  const uint32_t barriers = tiles + kReelTiles * kReelTileBytes + warp * 16;
  tiles += warp * 2 * kReelTileBytes;
  const auto advance = [&](ReelWalk& walk) {
    if ((walk.unit += all_warps) < r.units) return;
    walk.unit = first, ++walk.slice;
    if (++walk.buffer == r.buffers) walk.buffer = 0;
  };
  ReelWalk asked{0, first, 0}, here = asked;
  const auto ask = [&](int stage) {
    const ReelPlace place = place_of(r, asked.unit);
    barrier_expect(barriers + stage * 8, kReelTileBytes);
    copy_box(tiles + stage * kReelTileBytes, maps.from + place.second, barriers + stage * 8,
             place.pixel, place.channel, asked.slice * images + place.image, 0);
    advance(asked);
  };
  int told = 0;  // slices
  const auto tell = [&](int slices) {
    for (; told < slices; ++told)
      if (speaker) count_up(r.turned + told);
  };
  if (speaker)
    for (int k = 0; k < min(2, all); ++k) ask(k);
#pragma unroll 1
  for (int k = 0; k < all; ++k, advance(here)) {
    const uint32_t tile = tiles + k % 2 * kReelTileBytes;
    barrier_wait(barriers + k % 2 * 8, k / 2 & 1);
    turn_tile(tile);
    fence_for_wgmma();  // for the copy engine
    __syncwarp();
    if (here.unit == first && here.slice >= r.buffers) {
      const uint32_t* const read = r.read + here.slice - r.buffers;
      if (!all_counted(read, r.blocks)) {
        if (speaker) stored_boxes_there_but<0>();
        tell(here.slice);
        while (!all_counted(read, r.blocks)) continue;
      }
    }
    if (speaker) {
      const ReelPlace place = place_of(r, here.unit);
      store_box(maps.to + place.second, tile, place.channel, place.pixel,
                here.buffer * images + place.image, 0, 0);
      if (k + 2 < all) {
        stored_boxes_read_but<0>();
        ask(k % 2);
      }
    }
    if (k >= (told + 1) * mine) {  // all but the last one are there
      if (speaker) stored_boxes_there_but<1>();
      tell(told + 1);
    }
    __syncwarp();
  }
  if (speaker) stored_boxes_there_but<0>();
  tell(r.slices);
}

}  // namespace convt2d::cuda::spool
