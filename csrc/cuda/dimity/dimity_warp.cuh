// What a warp of dimity works on, whichever way its operands lie.
#pragma once

#include "cuda/device/strict_product.cuh"
#include "cuda/dimity/dimity_stage.cuh"

namespace convt2d::cuda::dimity {

// Of a thread: [kernel row][tap][output channel of its first or second row, input channel 2 t or the next].
template <int ROW>
using Sums = float[kTiles[ROW].taps_h][kTiles[ROW].taps_w][4];

// What a warp works on: the first of its kernel rows, tap columns, output and input channels, and its group, in the block;
// which chunks, and which steps.
struct WarpPart {
  int row, tap, output, input, group, part, turn;
  __device__ __forceinline__ WarpPart(const Params& p, Tile tile, int warp) {
    Digits number{warp};
    row = number.next(p.row_units) * tile.taps_h;
    tap = number.next(p.tap_units) * tile.taps_w;
    output = number.next(p.out_units) * kOutputs;
    input = number.next(p.in_units) * kInputs;
    group = number.next(p.group_units);
    part = number.next(p.parts);
    turn = number.rest;
  }
};

// A lane's words, as they are multiplied: rounded, or as two parts.
template <class M, int WORDS>
__device__ __forceinline__ void round_or_split(uint32_t (&word)[WORDS], uint32_t (&low)[WORDS]) {
#pragma unroll
  for (int i = 0; i < WORDS; ++i) {
    if constexpr (M::kSplit) {
      split_in_two(word[i], word[i], low[i]);
    } else {
      word[i] = M::round(word[i]);
    }
  }
}

// Whether a row of dY has a kernel row of the block, and its row of x exists.
__device__ __forceinline__ bool meets(const Params& p, const Scope& at, const Steps& steps,
                                      int phase, int tap_h) {
  return at.kernel_h + tap_h < p.kernel_h && p.phase[tap_h] == phase &&
         unsigned(steps.q - p.back[tap_h]) < unsigned(p.x_h);
}

// How far a step looks back for a kernel row's row of x. Of one that is not there it fetches its own, and does not use it: that
// costs less than to ask.
__device__ __forceinline__ int look_back(const Params& p, int tap_h, bool there) {
  return there ? p.back[tap_h] : 0;
}

// Of a thread's sums of a tap, which output channel of the warp's it is. Words of dY, channels last, come as two neighbours.
template <class T>
__device__ __forceinline__ int output_of(Tile tile, int lane, int second) {
  return tile.channels_last && sizeof(T) == 4 ? lane / 4 * 2 + second : lane / 4 + second * 8;
}

}  // namespace convt2d::cuda::dimity
