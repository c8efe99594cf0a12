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
    for (int k = 0; k < 4; ++k) MmaF32x3::split(word[k], high[i][k], low[i][k]);
  }
};

template <int TILE>
using Part = float[1][positions(kTiles[TILE]) / 2];

// Starts COUNT products, the ith of which is that of words FIRST + i * STEP; `operand(word)` is where its pixels are.
template <int TILE, int FIRST, int STEP, int COUNT, class Operand>
__device__ __forceinline__ void start_part(const GatherParams& p, Part<TILE>& part,
                                           const SplitWords<TILE>& words, Operand&& operand) {
  using Words = const uint32_t (&)[4];
  start_strict<positions(kTiles[TILE]), COUNT>(
      part, [&](int i) -> Words { return words.high[FIRST + i * STEP]; },
      [&](int i) -> Words { return words.low[FIRST + i * STEP]; },
      [&](int i) { return operand(FIRST + i * STEP); }, p.half_bytes >> 3);
}

// The same for the first so many words, at most MOST.
template <int TILE, int MOST, class Operand>
__device__ __forceinline__ void start_some(const GatherParams& p, Part<TILE>& part,
                                           const SplitWords<TILE>& words, Operand&& operand,
                                           int count) {
  if constexpr (MOST > 1)
    if (count < MOST) return start_some<TILE, MOST - 1>(p, part, words, operand, count);
  start_part<TILE, 0, 1, MOST>(p, part, words, operand);
}

// One phase: while a batch is multiplied the words of the next one come.
template <int TILE>
__device__ __forceinline__ void multiply_one_phase(const GatherParams& p, Fetcher<TILE>& fetcher,
                                                   Sums<TILE>& sum, uint32_t layout_high) {
  constexpr int kTaps = kTiles[TILE].taps, kSteps = batch_steps(kTiles[TILE]);
  const int steps = (fetcher.end - fetcher.first) * p.slices,
            batches = (steps + kSteps - 1) / kSteps * p.chunks;
  Fetched<TILE> next[kSteps];
  fetcher.enter();
  int more = fetcher.fetch_batch(next);
#pragma unroll 1
  for (int left = batches; left > 0; --left) {
    const int count = more;
    SplitWords<TILE> words;
    uint32_t pixel[kSteps];
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      pixel[step] = next[step].pixel;
#pragma unroll
      for (int tap = 0; tap < kTaps; ++tap) words.split(step * kTaps + tap, next[step].word[tap]);
    }
    const auto operand = [&](int word) {
      const int tap = word % kTaps;
      return uint64_t{layout_high} << 32 | (pixel[word / kTaps] + (tap ? p.column[tap] : 0));
    };
    Part<TILE> part;
    if constexpr (kSteps == 1)
      start_part<TILE, 0, 1, kTaps>(p, part, words, operand);
    else
      start_some<TILE, kSteps>(p, part, words, operand, count);
    if (left > 1) more = fetcher.fetch_batch(next);
    wgmma_wait<0>();
    fetcher.give_back();
    join_part(sum[0], part[0]);
  }
}

// Two: while the products of one are summed, those of the other are joined.
template <int TILE>
__device__ __forceinline__ void multiply_two_phases(const GatherParams& p, Fetcher<TILE>& fetcher,
                                                    Sums<TILE>& sum, uint32_t layout_high) {
  constexpr int kTaps = kTiles[TILE].taps;
  Fetched<TILE> next;
  SplitWords<TILE> words;
  const auto split = [&](int phase) {
#pragma unroll
    for (int tap = phase; tap < kTaps; tap += 2) words.split(tap, next.word[tap]);
  };
  fetcher.enter();
  fetcher.fetch(next);
  split(0);
#pragma unroll 1
  for (int left = (fetcher.end - fetcher.first) * p.slices * p.chunks; left > 0; --left) {
    const uint32_t pixel = next.pixel;
    const auto operand = [&](int tap) {
      return uint64_t{layout_high} << 32 | (pixel + (tap ? p.column[tap] : 0));
    };
    Part<TILE> part[2];
    start_part<TILE, 0, 2, (kTaps + 1) / 2>(p, part[0], words, operand);
    split(1);
    start_part<TILE, 1, 2, kTaps / 2>(p, part[1], words, operand);
    wgmma_wait<1>();
    join_part(sum[0], part[0][0]);
    // Within the branch, or nvcc 13.0 waits first.
    if (left > 1) {
      fetcher.fetch(next);
      split(0);
    }
    wgmma_wait<0>();
    fetcher.give_back();
    join_part(sum[1], part[1][0]);
  }
}

template <int TILE>
__device__ __forceinline__ void multiply_tile_strict(const GatherParams& p, Fetcher<TILE>& fetcher,
                                                     Sums<TILE>& sum, uint32_t layout_high) {
  if constexpr (kTiles[TILE].phases == 1)
    multiply_one_phase(p, fetcher, sum, layout_high);
  else
    multiply_two_phases(p, fetcher, sum, layout_high);
}

}  // namespace convt2d::cuda::loom
