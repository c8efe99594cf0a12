// Which lines a warpgroup has.
#pragma once

#include "cuda/scroll/scroll_config.h"

namespace convt2d::cuda::scroll {

// The phase of columns and the channels a block works on, and which one it is of those that share them.
struct Scope {
  int phase, column_tile, walker;
};
__device__ __forceinline__ Scope scope_of(const Params& p) {
  int block = blockIdx.x, phase = 0;
  const int first = p.walkers[0] * p.column_tiles;
  if (block >= first) phase = 1, block -= first;
  const int walkers = p.walkers[phase], tile = block / walkers;
  return {phase, tile, block - tile * walkers};
}

// Elements from the first of a tensor to one of its numbers.
template <bool PLANES>
__device__ __forceinline__ int spot_of(int n, int channel, int channels, int h, int rows, int w,
                                       int columns) {
  return PLANES ? ((n * channels + channel) * rows + h) * columns + w
                : ((n * rows + h) * columns + w) * channels + channel;
}

// A warpgroup's lines, a part for each strip they are of. Whoever asks for a part's rows goes down the same ones as who
// multiplies them.
class Descent {
 public:
  int n, q;  // the strip's first image and position
  int row, first,
      last;  // rows of x: to be multiplied from, to be completed from, and where they end

  __device__ __forceinline__ Descent(const Params& p, const Scope& at, int group) {
    const int runs = p.walkers[at.phase] * p.warpgroups, run = at.walker * p.warpgroups + group;
    const int each = p.lines / runs, more = p.lines - each * runs;
    line_ = run * each + min(run, more);
    end_ = line_ + each + (run < more);
  }
  __device__ __forceinline__ bool next(const Params& p, Tile tile) {
    if (line_ >= end_) return false;
    const int strip = p.by_steps.quotient(line_), inside = line_ - strip * p.steps;
    const int images = p.by_strips.quotient(strip);
    const int count = min(p.steps - inside, end_ - line_);
    n = images * (p.eights ? kEight : 1);
    q = (strip - images * p.strips_w) * (p.eights ? kEight : kPositions);
    first = p.first_row + inside;
    last = first + count;
    row = first - reach_of(tile);
    line_ += count;
    return true;
  }

 private:
  int line_, end_;
};

}  // namespace convt2d::cuda::scroll
