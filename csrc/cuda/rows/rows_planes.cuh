// Of NCHW, what both ways to multiply need: where a block works, and where a warp's outputs belong.
#pragma once

#include "cuda/device/digits.cuh"
#include "cuda/rows/rows_operands.cuh"

namespace convt2d::cuda::rows {

struct Place {
  int n, h, w;        // image, first position
  int group, column;  // first channel within the group
  int channels;       // that exist
};

__device__ __forceinline__ Place place_of(const Params& p) {
  Digits number{int(blockIdx.x)};
  Place at;
  at.column = number.next(p.column_tiles) * kChannels;
  at.w = number.next(p.tiles_w) * p.tile_width;
  at.h = number.next(p.tiles_h) * p.tile_rows;
  at.group = number.next(p.groups);
  at.n = number.rest;
  at.channels = min(kChannels, p.columns - at.column);
  return at;
}

__device__ __forceinline__ float bias_of(const Params& p, uint32_t shared, int channel) {
  return load_shared<float>(shared + p.bias_at + channel * 4);
}
// Where a buffer has the first output of a channel: as far from a multiple of a line as in memory.
template <class T>
__device__ __forceinline__ uint32_t staged_row(const Params& p, uint32_t staging, uint32_t element,
                                               int channel) {
  const uint32_t lead = (element + channel * uint32_t(p.h.out * p.w.out)) % kLine<T>;
  return staging + channel * p.staging_pitch + lead * sizeof(T);
}

// What a warp multiplies: steps of a pair of phases, for pixels from its first position's on. Where the row that it is
// part of begins in memory, its buffer, and the place of the first position's output there.
struct Work {
  int first, end;
  uint32_t pixels;
  uint32_t element, staging;
  int output;
};

}  // namespace convt2d::cuda::rows
