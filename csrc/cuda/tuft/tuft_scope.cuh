// Where a thread of the tuft kernel is: channels, lines of pixels.
#pragma once

#include "cuda/tuft/tuft_config.h"

namespace convt2d::cuda::tuft {

template <class T>
constexpr bool is_word = sizeof(T) == 4;

// The columns of a block, and which of the blocks with the same columns it is.
struct Scope {
  int group, column_block, walker;
};
__device__ __forceinline__ Scope scope_of(const Params& p) {
  const int rest = blockIdx.x / p.column_blocks;
  return {rest % p.groups, static_cast<int>(blockIdx.x) % p.column_blocks, rest / p.groups};
}

// The image and first pixel of a line.
struct Line {
  int n, first;
};
// Calls `visit` with each line of a team.
template <int ROW, class Visit>
__device__ __forceinline__ void for_lines(const Params& p, const Scope& at, int team,
                                          Visit&& visit) {
  constexpr int kTeams = kTiles[ROW].teams;
  for (int i = at.walker * kTeams + team; i < p.batch * p.lines; i += p.walkers * kTeams) {
    const int n = p.by_lines.quotient(i);
    visit(Line{n, (i - n * p.lines) * kPixels});
  }
}

}  // namespace convt2d::cuda::tuft
