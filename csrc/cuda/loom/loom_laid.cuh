// Weights that stay, laid out once as the tensor core reads them, and products that fetch nothing: the warps of a group ask
// for a product and go on, so a group alone keeps the tensor core busy while the other one stores what it has.
//
//   weights   [set or phase of rows][step][slice][half][row][16 B]: of each step and slice a matrix of 64 rows x 32 bytes of
//             K, plain (device/wgmma.cuh). 16 bytes more from step to step, so that lanes that lay taps of neighbouring
//             channels meet few banks twice
//
// Warpgroups that have tiles of their own take turns: barriers say whose turn it is, and from the middle of its last chunk on
// a tile is followed by the other warpgroup's.
#pragma once

#include "cuda/device/barrier.cuh"
#include "cuda/device/memory.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/loom/loom_halves.cuh"
#include "cuda/loom/loom_store.cuh"

namespace convt2d::cuda::loom {

constexpr int kLayersMeet = 1;  // named barrier
constexpr int kLaidAtOnce = 16;

// Which tap of the kernel a step has, of one phase of rows.
__device__ __forceinline__ int tap_of_step(const GatherParams& p, int step) {
  return int(p.step[step].weights & (1u << kPhaseShift) - 1) / p.element_bytes;
}
__device__ __forceinline__ int first_run(const GatherParams& p, const Scope& at) {
  return at.group_h * p.row_phases;
}

// [tap][phase of rows of the block]: where the tap's matrices are, bytes, or -1. By all threads.
__device__ __forceinline__ void build_laid(const GatherParams& p, const Scope& at,
                                           uint32_t shared) {
  const int base = p.first_step[first_run(p, at)];
  for (int i = threadIdx.x; i < 2 * p.taps; i += kThreads) {
    const int phase = i % 2, run = first_run(p, at) + phase;
    int place = -1;
    if (phase < p.row_phases)
      for (int step = p.first_step[run]; step < p.first_step[run + 1]; ++step)
        if (!(p.step[step].weights & kNoTap) && tap_of_step(p, step) == i / 2) {
          // Halves of rows are of the same steps.
          const int number = p.halved ? step - p.first_step[run] : step - base;
          place = number * p.laid_step + (p.halved ? phase * (kHalfMatrix / 2) : 0);
        }
    store_shared_4(shared + p.laid_at + i * 4, uint32_t(place));
  }
}

// Which channel of a slice the first number of a word is, of the word'th word of a half; and how far the second one is.
template <class T>
__device__ __forceinline__ int channel_of_word(const GatherParams& p, int half, int word) {
  if (sizeof(T) == 4) return 4 * half + word;
  return p.lines == 2 ? 2 * word + half : 8 * half + word;
}

// By those who multiply, while others bring the first patches. A lane has 16 bytes of what lies as (channel, tap), of one channel
// in, or of the two that a word has, eight lanes have neighbours, times the four words of a half; many are on their way at
// once, since all blocks want the same at the same time.
template <class T>
__device__ __forceinline__ void lay_weights(const GatherParams& p, const Scope& at,
                                            uint32_t shared) {
  constexpr int kNumbers = 16 / sizeof(T), kRun = 8 * kNumbers, kSources = 4 / sizeof(T),
                kAtOnce = kLaidAtOnce / kSources, kSlice = slice_of(sizeof(T));
  const int lane = threadIdx.x % 32, word_in_half = lane / 8;
  const int halves = 2 * p.slices * p.chunks, all = p.tile_channels * p.taps,
            left = (p.columns - at.column_tile * p.tile_channels) * p.taps;
  const uint32_t laid = shared + p.weights_at;
  if (p.halved) {
    // Rows that a step has no tap for.
    const int first = p.first_step[first_run(p, at)];
    for (int phase = 0; phase < 2; ++phase)
      for (int step = p.first_step[first_run(p, at) + phase], i = 0;
           i < p.first_step[first_run(p, at) + 1] - first; ++i, ++step) {
        if (!(p.step[step].weights & kNoTap)) continue;
        for (int j = threadIdx.x; j < halves * (kRows / 2); j += kConsumers)
          store_shared_16(laid + i * p.laid_step + phase * (kHalfMatrix / 2) +
                              j / (kRows / 2) * kHalfMatrix + j % (kRows / 2) * 16,
                          {0, 0, 0, 0});
      }
  }
  const T* const weight = static_cast<const T*>(p.weight) + at.group * p.weight_group +
                          at.column_tile * p.tile_channels * p.taps;
  const int batches = (halves + kAtOnce - 1) / kAtOnce, runs = (all + kRun - 1) / kRun;
#pragma unroll 1
  for (int i = threadIdx.x / 32; i < runs * batches; i += kConsumers / 32) {
    const int first_half = i % batches * kAtOnce, mine = i / batches * kRun + lane % 8 * kNumbers;
    const T* const from = weight + mine;
    uint32_t word[kAtOnce][kSources][4];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int half = first_half + j,
                number = half / 2 * kSlice + channel_of_word<T>(p, half % 2, word_in_half);
      const int reduce = mine < left && half < halves ? p.reduce : 0;
#pragma unroll
      for (int source = 0; source < kSources; ++source) {
        const int channel = number + source * (p.lines == 2 ? 8 : 4);
        load_16_if(from + channel * p.weight_reduce, channel, reduce, word[j][source]);
      }
    }
    // Where the numbers go, of each phase of rows that has their taps.
    int to[kNumbers][2];
    int channel = mine / p.taps, tap = mine - channel * p.taps;
#pragma unroll
    for (int k = 0; k < kNumbers; ++k) {
      uint32_t place[2];
      load_shared_8(shared + p.laid_at + tap * 8, place);
      const int row = channel / kRows * p.laid_set + channel % kRows * 16 + word_in_half * 4;
#pragma unroll
      for (int phase = 0; phase < 2; ++phase)
        to[k][phase] = mine + k < all && int(place[phase]) >= 0 ? int(place[phase]) + row : -1;
      if (++tap == p.taps) tap = 0, ++channel;
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int half = first_half + j;
      if (half >= halves) continue;
#pragma unroll
      for (int k = 0; k < kNumbers; ++k) {
        const uint32_t (&source)[kSources][4] = word[j];
        uint32_t number;
        if constexpr (sizeof(T) == 4)
          number = MmaTF32::round(source[0][k]);
        else
          number = k % 2 ? high_halves(source[0][k / 2], source[1][k / 2])
                         : low_halves(source[0][k / 2], source[1][k / 2]);
#pragma unroll
        for (int phase = 0; phase < 2; ++phase)
          if (to[k][phase] >= 0) store_shared_4(laid + to[k][phase] + half * kHalfMatrix, number);
      }
    }
  }
  fence_for_wgmma();
  __syncwarp();
  barrier_among(kLayersMeet, kConsumers);
}

// Where the operands of a chunk are: of its first step and slice, and of a position; lower halves.
struct LaidOperands {
  uint32_t weights, pixels, weights_high, pixels_high;
};

// The products of a step in all slices of a chunk.
template <class T, int TILE, int SLICES, int PHASE>
__device__ __forceinline__ void multiply_step(const GatherParams& p, Sums<TILE>& sum,
                                              const LaidOperands& from, int step, int number) {
  const uint32_t a = from.weights + (number * p.laid_step >> 4),
                 b = from.pixels + p.step[step].pixel, next = p.turned_slice >> 4;
  wgmma_fence();
#pragma unroll
  for (int slice = 0; slice < SLICES; ++slice)
    Wgmma<T, positions(kTiles[TILE])>::add(
        sum[PHASE], uint64_t{from.weights_high} << 32 | (a + slice * (kMatrix >> 4)),
        uint64_t{from.pixels_high} << 32 | (b + slice * next));
  wgmma_commit();
}

// Those of a chunk. `left`: when those of the chunk before are there; `middle`: when half of these have been asked for.
template <class T, int TILE, int SLICES, class Left, class Middle>
__device__ __forceinline__ void multiply_chunk(const GatherParams& p, Sums<TILE>& sum,
                                               const LaidOperands& from, int row, Left&& left,
                                               Middle&& middle) {
  const int first = p.first_step[row], half = p.middle[row], end = p.first_step[row + 1];
  multiply_step<T, TILE, SLICES, 0>(p, sum, from, first, 0);
  wgmma_wait<1>();
  left();
#pragma unroll 1
  for (int step = first + 1; step < half; ++step)
    multiply_step<T, TILE, SLICES, 0>(p, sum, from, step, step - first);
  middle();
#pragma unroll 1
  for (int step = half; step < end; ++step)
    multiply_step<T, TILE, SLICES, kTiles[TILE].phases - 1>(p, sum, from, step, step - first);
}

template <class T, int TILE>
__device__ __forceinline__ void consume_laid(const GatherParams& p, const Scope& at,
                                             uint32_t shared, const CUtensorMap* map) {
  lay_weights<T>(p, at, shared);
  const int group = warpgroup_of_block(),
            row = first_run(p, at) + (p.halved ? 0 : uniform(row_phase(p)));
  const bool speaks = threadIdx.x % 32 == 0;
  const uint64_t w_layout = operand_layout(kHalfMatrix, 8 * 16),
                 x_layout = operand_layout(p.half_bytes, p.column_pitch);
  // Of a group's first step, and of its first position.
  const uint32_t weights = uint32_t(operand(
                     w_layout,
                     shared + p.weights_at + (p.tile_channels > kRows ? group * p.laid_set : 0) +
                         (p.first_step[row] - p.first_step[first_run(p, at)]) * p.laid_step)),
                 pixels = uint32_t(operand(x_layout, shared + p.turned_at)) +
                          (same_positions(p) ? 0 : group * p.beside >> 4);
  TileWalk walk = uniform_walk(shared);
  if (p.own_tiles) {
    walk.first += group * walk.step;
    walk.step *= kGroups;
  }
  bool nan = false;
  Ring ring;
  if (p.own_tiles && group > 0) ring.skip(p.chunks, p.turned_stages);
  uint32_t turn = group ^ 1;
  for (int tile = walk.first; tile < walk.end; tile += walk.step) {
    Sums<TILE> sum;
    clear(sum);
    if (steps_of_row(p, row) > 0) {
      if (p.own_tiles) barrier_wait(shared + kTurns + group * 8, turn);
      turn ^= 1;
      uint32_t used = 0;  // `empty` of the stage that was left, but is maybe being read
      for (int chunk = 0; chunk < p.chunks; ++chunk) {
        const uint32_t barrier = shared + kTurnedBarriers + ring.stage * 16;
        barrier_wait(barrier, ring.parity);
        const LaidOperands from = {weights + chunk * p.slices * (kMatrix >> 4),
                                   pixels + (ring.stage * p.turned_bytes >> 4),
                                   uint32_t(w_layout >> 32), uint32_t(x_layout >> 32)};
        const auto left = [&] {
          if (speaks && used) barrier_arrive(used);
        };
        // From here on nobody waits for a stage of another turn.
        const auto middle = [&] {
          if (p.own_tiles && chunk + 1 == p.chunks && speaks)
            barrier_arrive(shared + kTurns + (group ^ 1) * 8);
        };
        if (p.slices == 4)
          multiply_chunk<T, TILE, 4>(p, sum, from, row, left, middle);
        else if (p.slices == 2)
          multiply_chunk<T, TILE, 2>(p, sum, from, row, left, middle);
        else
          multiply_chunk<T, TILE, 1>(p, sum, from, row, left, middle);
        used = barrier + 8;
        ring.advance(p.turned_stages);
      }
      wgmma_wait<0>();
#pragma unroll
      for (int i = 0; i < kTiles[TILE].phases; ++i) finished(sum[i]);
      if (speaks) barrier_arrive(used);
      if (p.own_tiles) ring.skip(p.chunks, p.turned_stages);
    }
    if constexpr (sizeof(T) == 2 && kTiles[TILE].phases == 2) {
      if (p.boxed) {
        nan |= store_boxes<T, TILE>(p, shared, tile, sum, map);
        continue;
      }
    }
    nan |= (sizeof(T) == 2 ? laid_lines(kTiles[TILE]) : p.lined)
               ? store_lines<T, TILE>(p, shared, tile, sum)
               : store<T, TILE>(p, shared, tile, sum);
  }
  finish_boxes(p);
  if (nan) repair_tiles<T, TILE>(p, shared, walk);
}

}  // namespace convt2d::cuda::loom
