// What a block of hank works on.
#pragma once

#include "cuda/device/digits.cuh"
#include "cuda/hank/hank_config.h"

namespace convt2d::cuda::hank {

// The channels and phase rows of a block, and its steps.
struct Scope {
  int channel, phase_row;  // the first ones
  int phase_rows;          // that there are
  int piece, begin, end;   // of all steps
};
// Neighbouring blocks read the same pixels of x, and neighbouring rows of dY, at about the same time.
template <class T>
__device__ __forceinline__ Scope scope_of(const Params& p) {
  Digits number{int(blockIdx.x)};
  Scope at;
  at.phase_row = number.next(p.phase_blocks) * p.phase_rows;
  at.channel = number.next(p.line_blocks) * line_channels(sizeof(T));
  at.phase_rows = min(p.phase_rows, min(p.stride_h, p.kernel_h) - at.phase_row);
  at.piece = number.rest;
  at.begin = static_cast<int>(int64_t{p.steps} * at.piece / p.split);
  at.end = static_cast<int>(int64_t{p.steps} * (at.piece + 1) / p.split);
  return at;
}

// The image, row and pixel that a step begins with.
struct Step {
  int n, q, pixel;
  __device__ __forceinline__ Step(const Params& p, int number) {
    const int strip = p.by_bands.quotient(number);
    q = (number - strip * p.bands) * p.band;
    n = p.by_strips.quotient(strip);
    pixel = (strip - n * p.strips) * p.pixels;
  }
};

}  // namespace convt2d::cuda::hank
