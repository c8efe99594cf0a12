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

// The eight pixels that start LEAD of them, fewer than eight, into 16.
template <int LEAD>
__device__ __forceinline__ void take_pixels(const uint32_t (&word)[8], uint32_t (&pixels)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (LEAD % 2 == 0)
      pixels[i] = word[i + LEAD / 2];
    else
      pixels[i] = __byte_perm(word[i + LEAD / 2], word[i + LEAD / 2 + 1], 0x5432);
  }
}

// Where a lane's piece of 16 bytes is in the lines of channel 0 or, if it has the second half of a warp's lanes, 1; what is
// swizzled are bits 4 to 6, by bits 7 to 9.
template <int ROW>
__device__ __forceinline__ uint32_t piece_at(const Params& p, int piece) {
  constexpr int kPieces = held_pixels(kTiles[ROW]) / kVector;
  const int channel = threadIdx.x % 32 / kPieces;
  return piece / 8 * p.depth * kLine + channel * kLine + ((piece ^ channel) % 8 << 4);
}

// Channels that have the same lead, from `first` to `end`, in place: all of a channel is read before anything of it is
// written. A lane takes 16 bytes of two of them. What would come from behind a channel's last line no product needs.
template <int ROW, int LEAD>
__device__ __forceinline__ void shift_channels(const Params& p, uint32_t stage, int skipped,
                                               int first, int end) {
  constexpr int kPieces = held_pixels(kTiles[ROW]) / kVector, kGroup = 32 / kPieces,
                kAtOnce = shifted_channels(kTiles[ROW]);
  const int piece = threadIdx.x % 32 % kPieces, from = piece + skipped;
  const uint32_t left_at = piece_at<ROW>(p, min(from, kPieces - 1)),
                 right_at = piece_at<ROW>(p, min(from + 1, kPieces - 1)),
                 to_at = piece_at<ROW>(p, piece);
  // Of a channel's number, which is even where there are two, the lowest three bits change places of pieces.
  const auto place = [&](uint32_t at, uint32_t channel) {
    return stage + (at ^ (channel % 8 << 4)) + channel * kLine;
  };
  for (int channel = first; channel < end; channel += kHelpers * kAtOnce) {
    uint32_t pixels[2][4];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      uint32_t left[4], right[4];
      load_shared_16(place(left_at, channel + i * kGroup), left);
      load_shared_16(place(right_at, channel + i * kGroup), right);
      const uint32_t word[8] = {left[0],  left[1],  left[2],  left[3],
                                right[0], right[1], right[2], right[3]};
      take_pixels<LEAD>(word, pixels[i]);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 2; ++i) store_shared_16(place(to_at, channel + i * kGroup), pixels[i]);
  }
}

// The same of any lead.
template <int ROW, int LEAD = 0>
__device__ __forceinline__ void shift_any(const Params& p, uint32_t stage, int lead, int first,
                                          int end) {
  if (lead % kVector == LEAD)
    shift_channels<ROW, LEAD>(p, stage, lead / kVector, first, end);
  else if constexpr (LEAD + 1 < kVector)
    shift_any<ROW, LEAD + 1>(p, stage, lead, first, end);
}

// Everything that a block multiplies.
template <int ROW>
__device__ __forceinline__ void shift_tiles(const Params& p, const Scope& at, StageRing& ring) {
  constexpr int kAtOnce = shifted_channels(kTiles[ROW]);
  const int warp = threadIdx.x / 32 - (threads(kTiles[ROW]) / 32 - kHelpers), count = sets<ROW>(p);
  for_tiles(p, at, [&](const Item& item, int row) {
    const int first = first_pixel(p, item, row) % kVector;
    for (int chunk = 0; chunk < p.chunks; ++chunk, ring.advance()) {
      barrier_wait(ring.full(), ring.parity);
      // Channels of one place in their sets after the other, each of which another warp begins.
      int turn = warp, lead = first;
      for (int channel = 0; channel < p.depth; channel += count, lead += p.plane_rest) {
        if (lead > 0)
          shift_any<ROW>(p, ring.stage(), lead, channel + turn * kAtOnce, channel + count);
        turn = turn + 1 < kHelpers ? turn + 1 : 0;
      }
      fence_for_wgmma();
      __syncwarp();
      if (threadIdx.x % 32 == 0) barrier_arrive(helped_barrier(ring));
    }
  });
}

}  // namespace convt2d::cuda::fold
