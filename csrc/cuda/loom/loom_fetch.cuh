// What warps that multiply fetch: weights, and where their pixels are.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/barrier.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/loom/loom_halves.cuh"
#include "cuda/loom/loom_scope.cuh"

namespace convt2d::cuda::loom {

// What a lane holds of a step: weights of its taps; where the pixels of the first are, as an operand; its phase.
template <int TILE>
struct Fetched {
  uint32_t word[kTiles[TILE].taps][4];
  uint32_t pixel, phase;
};

// Woven weights: where a lane's first kernel row is. The swizzle trades pieces of 16 bytes by the channel in, of which only the
// place in the slice counts; kernel rows, and a number of K four further on, differ in bits of that place.
__device__ __forceinline__ uint32_t woven_lane(const GatherParams& p, int lane) {
  return lane / 8 * p.row_pitch + lane % 4 * 128 + ((lane / 4 % 2 * 4) ^ (lane % 4)) * 16;
}
constexpr uint32_t kWovenFour = 64;

// Goes through the steps of a tile, ahead of the multiplications.
template <class T, int TILE>
struct Fetcher {
  // Weights may come in segments.
  static constexpr bool kSegments = sizeof(T) == 2 && kTiles[TILE].taps == 4;
  const GatherParams& p;
  const uint32_t shared;
  const int row;         // of the phases of rows
  int part, first, end;  // steps of the part
  uint32_t lane;         // in a stage of weights; where these may be segments, of its row alone,
  uint32_t number, swizzle;  // its number of K being another; and how its channels are swizzled
  uint32_t operand;         // of the group's first position, if the ring began at 0: the lower half
  uint32_t pixel, weights;  // of the slice: units, and an address
  int step, slice;
  Ring turned_ring, weight_ring;
  // Of a part that was left, but is maybe being read, its stages: one more than the turned one, and of weights, which are 0
  // where other parts still want them.
  struct Left {
    int turned, weights;
  };
  Left left;

  __device__ __forceinline__ void enter() {
    barrier_wait(shared + kTurnedBarriers + turned_ring.stage * 16, turned_ring.parity);
    barrier_wait(shared + kWeightBarriers + weight_ring.stage * p.weight_barrier,
                 weight_ring.parity);
    first = p.first_step[row * p.parts + part];
    end = p.first_step[row * p.parts + part + 1];
    pixel = operand + (turned_ring.stage * p.turned_bytes >> 4);
    weights =
        shared + p.weights_at + weight_ring.stage * p.weight_bytes + (kSegments ? number : lane);
    step = first;
    slice = 0;
  }
  __device__ __forceinline__ void leave() {
    left = {turned_ring.stage + 1, 0};
    turned_ring.advance(p.turned_stages);
    if (++part < p.parts) return;
    part = 0;
    left.weights = weight_ring.stage + 1;
    weight_ring.advance(p.weight_stages);
    if (p.resident) weight_ring.parity = 0;
  }
  __device__ __forceinline__ Left take_left() {
    const Left taken = left;
    left.turned = 0;
    return taken;
  }
  __device__ __forceinline__ void give_back(Left from) {
    if (threadIdx.x % 32 == 0 && from.turned) {
      barrier_arrive(shared + kTurnedBarriers + from.turned * 16 - 8);
      if (!p.resident && from.weights)
        barrier_arrive(shared + kWeightBarriers + from.weights * 16 - 8);
    }
  }
  __device__ __forceinline__ void next_slice() {
    step = first;
    pixel += p.turned_slice >> 4;
    weights += p.slice_pitch;
    ++slice;
  }
  __device__ __forceinline__ void fetch(Fetched<TILE>& to) {
    if (step == end) {
      next_slice();
      if (slice == p.slices) {
        leave();
        enter();
      }
    }
    read(to);
  }
  // As many steps of one part as are multiplied at once. How many they are.
  __device__ __forceinline__ int fetch_batch(Fetched<TILE> (&to)[batch_steps(kTiles[TILE])]) {
    fetch(to[0]);
    const int left = end - step + (p.slices - 1 - slice) * (end - first);
#pragma unroll
    for (int i = 1; i < batch_steps(kTiles[TILE]); ++i) {
      if (i > left) return i;
      if (step == end) next_slice();
      read(to[i]);
    }
    return batch_steps(kTiles[TILE]);
  }
  __device__ __forceinline__ void read(Fetched<TILE>& to) {
    const Step now = p.step[step++];
    to.pixel = pixel + now.pixel;
    if constexpr (kSegments) {
      const bool none = now.weights & kNoTap;
      fetch_operand(p, none ? shared + p.zeros_at : weights, none ? 0 : lane + now.weights, swizzle,
                    to.word);
      return;
    }
    uint32_t near = weights + now.weights;
    if constexpr (kTiles[TILE].phases > 1 && kTiles[TILE].taps == 1) {
      to.phase = now.weights >> kPhaseShift & 1;
      near = weights + (now.weights & 0xffff);
    }
    // Zeros, which a branch would have nvcc 13.0 wait for (C7515).
    if (now.weights & kNoTap) near = shared + p.zeros_at;
    if constexpr (sizeof(T) == 2) {
      fetch_operand(p, near, to.word);
    } else if constexpr (kTiles[TILE].taps == 4) {
      if (p.woven) near = weights ^ now.weights;
      fetch_words(near, (p.woven ? near ^ kWovenFour : near) + p.far_number, to.word);
    } else {
      fetch_words(near, near + p.far_number, to.word);
    }
  }
  // `far`: of the second half of K.
  __device__ __forceinline__ void fetch_words(uint32_t near, uint32_t far,
                                              uint32_t (&word)[kTiles[TILE].taps][4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t from = (i < 2 ? near : far) + (i % 2 ? p.far_row : 0);
      if constexpr (kTiles[TILE].taps == 4) {
        uint32_t taps[4];
        load_shared_16(from, taps);
#pragma unroll
        for (int tap = 0; tap < 4; ++tap) word[tap][i] = taps[tap];
      } else {
#pragma unroll
        for (int tap = 0; tap < kTiles[TILE].taps; ++tap)
          word[tap][i] = load_shared_4(from + tap * 4);
      }
    }
  }
};

}  // namespace convt2d::cuda::loom
