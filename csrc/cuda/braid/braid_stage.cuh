// What a block of braid works on, and its lines on their way to shared memory: one thread asks the copy engine.
#pragma once

#include "cuda/braid/braid_config.h"
#include "cuda/device/barrier.cuh"
#include "cuda/device/digits.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/tensor_copy.cuh"

namespace convt2d::cuda::braid {

struct Scope {
  int group, row, channel;  // the first input and output channel of the group's
  int piece, begin, end;    // chunks
};
// Neighbouring blocks read the same lines, at about the same time.
__device__ __forceinline__ Scope scope_of(const Params& p, Tile tile) {
  Digits number{int(blockIdx.x)};
  Scope at;
  at.channel = number.next(p.sum_tiles) * block_slabs(tile) * p.channels;
  at.row = number.next(p.row_tiles) * tile.width;
  at.group = number.next(p.groups);
  at.piece = number.rest;
  at.begin = static_cast<int>(int64_t{p.chunks} * at.piece / p.split);
  at.end = static_cast<int>(int64_t{p.chunks} * (at.piece + 1) / p.split);
  return at;
}

// A line of a row of an image, and then the next ones.
struct Chunk {
  int image, h, line;
  __device__ __forceinline__ Chunk(const Params& p, int chunk) {
    const int row = p.by_lines.quotient(chunk);
    line = chunk - row * p.lines;
    image = p.by_rows.quotient(row);
    h = row - image * p.x_h;
  }
  __device__ __forceinline__ void advance(const Params& p) {
    if (++line < p.lines) return;
    line = 0;
    if (++h == p.x_h) h = 0, ++image;
  }
  __device__ __forceinline__ bool last(const Params& p) const { return line == p.lines - 1; }
};

// All that a block multiplies, by one thread.
template <class T, int ROW>
__device__ __forceinline__ void bring(const Params& p, const Maps& maps, const Scope& at,
                                      StageRing& ring) {
  constexpr Tile tile = kTiles[ROW];
  const int input = at.group * p.rows + at.row, output = at.group * p.columns + at.channel;
  const int box_rows = block_slabs(tile) * p.channels;
  const uint32_t bytes = x_bytes(tile) + (tile.wide ? p.parts * box_rows * p.pitch
                                                    : block_slabs(tile) * slab_rows(p) * kLine);
  Chunk chunk(p, at.begin);
#pragma unroll 1
  for (int k = at.begin; k < at.end; ++k, chunk.advance(p), ring.advance()) {
    const int w = chunk.line * (kLine / static_cast<int>(sizeof(T)));
    const int y_h = chunk.h * p.step_h - p.pad_h, y_w = w * p.step_w - p.pad_w - p.lead;
    const uint32_t y = ring.stage() + x_bytes(tile);
    barrier_wait(ring.empty(), ring.parity ^ 1);
    barrier_expect(ring.full(), bytes);
    copy_box(ring.stage(), &maps.x, ring.full(), w, chunk.h, input, chunk.image);
    if constexpr (tile.wide) {
      for (int part = 0; part < p.parts; ++part)
        copy_box(y + part * p.part_bytes, &maps.y, ring.full(),
                 y_w + part * p.part_positions * p.step_w, y_h, output, chunk.image);
    } else {
#pragma unroll
      for (int slab = 0; slab < block_slabs(tile); ++slab)
        copy_box(y + slab * kSlab * kLine, &maps.y, ring.full(), y_w, y_h,
                 output + slab * p.channels, chunk.image);
    }
  }
}

}  // namespace convt2d::cuda::braid
