// fold of 16-bit planes of x that are no whole 16 bytes: three warps move pixels to where they belong.
//
// The copy engine has brought lines that start at multiples of 16 bytes, the same ones for all sets of channels. So the
// first pixel is as far into the lines of one channel as into those of any other with the same place in its set: those
// before it in the set have left `plane_rest` each.
#pragma once

#include "cuda/device/barrier.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/fold/fold_scope.cuh"

namespace convt2d::cuda::fold {

constexpr int kVector = vector_numbers(2);  // pixels of 16 bytes

// The eight pixels that start `lead` of them, fewer than eight, into 16.
__device__ __forceinline__ void take_pixels(uint32_t (&word)[8], int lead, uint32_t (&pixels)[4]) {
#pragma unroll
  for (int i = 0; i < 6; ++i) word[i] = lead & 4 ? word[i + 2] : word[i];
#pragma unroll
  for (int i = 0; i < 5; ++i) word[i] = lead & 2 ? word[i + 1] : word[i];
  const uint32_t select = lead & 1 ? 0x5432 : 0x3210;
#pragma unroll
  for (int i = 0; i < 4; ++i) pixels[i] = __byte_perm(word[i], word[i + 1], select);
}

// Channels of a stage that have the same lead, in place: all is read before anything is written. A lane takes 16 bytes of
// two of them. What would come from behind a channel's last line no product needs.
template <int ROW>
__device__ __forceinline__ void shift_channels(const Params& p, uint32_t stage, int channel,
                                               int lead) {
  constexpr int kPieces = tile_pixels(kTiles[ROW]) / kVector, kGroup = 32 / kPieces;
  const int lane = threadIdx.x % 32, piece = lane % kPieces, from = piece + lead / kVector;
  const auto place = [&](int channel, int piece) {
    return stage + (piece / 8 * p.depth + channel) * kLine + ((piece ^ channel) % 8 << 4);
  };
  uint32_t pixels[2][4];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int mine = channel + i * kGroup + lane / kPieces;
    uint32_t left[4], right[4];
    load_shared_16(place(mine, min(from, kPieces - 1)), left);
    load_shared_16(place(mine, min(from + 1, kPieces - 1)), right);
    uint32_t word[8] = {left[0], left[1], left[2], left[3], right[0], right[1], right[2], right[3]};
    take_pixels(word, lead % kVector, pixels[i]);
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 2; ++i)
    store_shared_16(place(channel + i * kGroup + lane / kPieces, piece), pixels[i]);
}

// Everything that a block multiplies.
template <int ROW>
__device__ __forceinline__ void shift_tiles(const Params& p, const Scope& at, StageRing& ring) {
  constexpr int kAtOnce = shifted_channels(kTiles[ROW]);
  const int warp = threadIdx.x / 32 - (kThreads / 32 - kHelpers), count = sets<ROW>(p);
  for_tiles(p, at, [&](const Item& item, int row) {
    const int first = first_pixel(p, item, row) % kVector;
    for (int chunk = 0; chunk < p.chunks; ++chunk, ring.advance()) {
      barrier_wait(ring.full(), ring.parity);
      for (int channel = warp * kAtOnce; channel < p.depth; channel += kHelpers * kAtOnce) {
        const int lead = first + channel / count * p.plane_rest;
        if (lead > 0) shift_channels<ROW>(p, ring.stage(), channel, lead);
      }
      fence_for_wgmma();
      __syncwarp();
      if (threadIdx.x % 32 == 0) barrier_arrive(helped_barrier(ring));
    }
  });
}

}  // namespace convt2d::cuda::fold
