// The products of a tile in strict fp32: three for one, summed in parts (cuda/device/strict_product.cuh).
#pragma once

#include "cuda/device/strict_product.cuh"
#include "cuda/loom/loom_fetch.cuh"
#include "cuda/loom/loom_store.cuh"

namespace convt2d::cuda::loom {

// Steps that are multiplied at once, or all taps of one: their words, taken apart.
template <int TILE>
struct SplitWords {
  static constexpr int kCount = batch_steps(kTiles[TILE]) * kTiles[TILE].taps;
  uint32_t high[kCount][4], low[kCount][4];

  __device__ __forceinline__ void split(int i, const uint32_t (&word)[4]) {
#pragma unroll
    for (int k = 0; k < 4; ++k) split_in_two(word[k], high[i][k], low[i][k]);
    computed(high[i]);
    computed(low[i]);
  }
};

template <int TILE>
using Part = float[1][positions(kTiles[TILE]) / 2];

// Of the phase in slot PHASE, taps of a step, and the words of a batch that are its ith.
template <int TILE, int PHASE>
constexpr int kPhaseTaps =
    (kTiles[TILE].taps - PHASE + kTiles[TILE].phases - 1) / kTiles[TILE].phases;
template <int TILE, int PHASE>
__device__ constexpr int word_of(int i) {
  constexpr int kCount = kPhaseTaps<TILE, PHASE>;
  return i / kCount * kTiles[TILE].taps + i % kCount * kTiles[TILE].phases + PHASE;
}

// Starts the products of a phase of `steps` steps, at most MOST; `operand(word)` is where pixels are.
template <int TILE, int PHASE, int MOST, class Operand>
__device__ __forceinline__ void start_part(const GatherParams& p, Part<TILE>& part,
                                           const SplitWords<TILE>& words, Operand&& operand,
                                           int steps) {
  using Words = const uint32_t (&)[4];
  if constexpr (MOST > 1)
    if (steps < MOST) return start_part<TILE, PHASE, MOST - 1>(p, part, words, operand, steps);
  start_strict<positions(kTiles[TILE]), MOST * kPhaseTaps<TILE, PHASE>>(
      part, [&](int i) -> Words { return words.high[word_of<TILE, PHASE>(i)]; },
      [&](int i) -> Words { return words.low[word_of<TILE, PHASE>(i)]; },
      [&](int i) { return operand(word_of<TILE, PHASE>(i)); }, p.half_bytes >> 3);
}

// A batch that was fetched: its words, and where its pixels are.
template <int TILE>
struct Batch {
  static constexpr int kSteps = batch_steps(kTiles[TILE]), kTaps = kTiles[TILE].taps;
  Fetched<TILE> step[kSteps];
  int steps;

  __device__ __forceinline__ void fetch(Fetcher<float, TILE>& fetcher) {
    steps = fetcher.fetch_batch(step);
  }
  // Words of the phase in slot PHASE.
  template <int PHASE>
  __device__ __forceinline__ void split(SplitWords<TILE>& words) const {
#pragma unroll
    for (int i = 0; i < kSteps * kPhaseTaps<TILE, PHASE>; ++i) {
      const int word = word_of<TILE, PHASE>(i);
      words.split(word, step[word / kTaps].word[word % kTaps]);
    }
  }
};
template <int TILE>
__device__ __forceinline__ int batches_of_tile(const GatherParams& p,
                                               const Fetcher<float, TILE>& fetcher) {
  constexpr int kSteps = batch_steps(kTiles[TILE]);
  int batches = 0;
  for (int i = fetcher.row * p.parts; i < (fetcher.row + 1) * p.parts; ++i)
    batches += ((p.first_step[i + 1] - p.first_step[i]) * p.slices + kSteps - 1) / kSteps;
  return batches * p.chunks;
}

// Where the pixels of a batch are, word by word.
template <int TILE>
struct Pixels {
  const GatherParams& p;
  uint32_t layout_high, step[batch_steps(kTiles[TILE])];

  __device__ __forceinline__ Pixels(const GatherParams& params, uint32_t layout,
                                    const Batch<TILE>& batch)
      : p(params), layout_high(layout) {
#pragma unroll
    for (int i = 0; i < batch_steps(kTiles[TILE]); ++i) step[i] = batch.step[i].pixel;
  }
  __device__ __forceinline__ uint64_t operator()(int word) const {
    const int tap = word % kTiles[TILE].taps;
    return uint64_t{layout_high} << 32 |
           (step[word / kTiles[TILE].taps] + (tap ? p.column[tap] : 0));
  }
};

// One phase: while a batch is multiplied the words of the next one come.
template <int TILE>
__device__ __forceinline__ void multiply_one_phase(const GatherParams& p,
                                                   Fetcher<float, TILE>& fetcher, Sums<TILE>& sum,
                                                   uint32_t layout_high) {
  constexpr int kSteps = batch_steps(kTiles[TILE]);
  Batch<TILE> next;
  next.fetch(fetcher);
#pragma unroll 1
  for (int left = batches_of_tile(p, fetcher); left > 0; --left) {
    SplitWords<TILE> words;
    Part<TILE> part;
    next.template split<0>(words);
    start_part<TILE, 0, kSteps>(p, part, words, Pixels<TILE>(p, layout_high, next), next.steps);
    if (left > 1) next.fetch(fetcher);
    wgmma_wait<0>();
    fetcher.give_back(fetcher.take_left());
    join_part(sum[0], part[0]);
  }
}

// Two: while the products of one are summed, those of the other are joined.
template <int TILE>
__device__ __forceinline__ void multiply_two_phases(const GatherParams& p,
                                                    Fetcher<float, TILE>& fetcher, Sums<TILE>& sum,
                                                    uint32_t layout_high) {
  constexpr int kSteps = batch_steps(kTiles[TILE]);
  Batch<TILE> next;
  SplitWords<TILE> words;
  next.fetch(fetcher);
  next.template split<0>(words);
#pragma unroll 1
  for (int left = batches_of_tile(p, fetcher); left > 0; --left) {
    const Pixels<TILE> pixels(p, layout_high, next);
    Part<TILE> part[2];
    start_part<TILE, 0, kSteps>(p, part[0], words, pixels, next.steps);
    next.template split<1>(words);
    start_part<TILE, 1, kSteps>(p, part[1], words, pixels, next.steps);
    wgmma_wait<1>();
    join_part(sum[0], part[0][0]);
    // Within the branch, or nvcc 13.0 waits first.
    if (left > 1) {
      next.fetch(fetcher);
      next.template split<0>(words);
    }
    wgmma_wait<0>();
    fetcher.give_back(fetcher.take_left());
    join_part(sum[1], part[1][0]);
  }
}

template <int TILE>
__device__ __forceinline__ void multiply_tile_strict(const GatherParams& p,
                                                     Fetcher<float, TILE>& fetcher, Sums<TILE>& sum,
                                                     uint32_t layout_high) {
  if constexpr (kTiles[TILE].phases == 1)
    multiply_one_phase(p, fetcher, sum, layout_high);
  else
    multiply_two_phases(p, fetcher, sum, layout_high);
}

}  // namespace convt2d::cuda::loom
