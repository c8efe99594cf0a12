// What a block of heddle works on, and its lines of x and dY on their way to shared memory. All threads ask for them.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/digits.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/heddle/heddle_config.h"

namespace convt2d::cuda::heddle {

// The channels, taps and steps of a block.
struct Scope {
  int group, input, output;  // the first channels, of the group's
  int kernel_h, kernel_w;    // the first tap
  int piece, begin, end;     // steps
};
// Neighbouring blocks read the same pixels, at about the same time.
__device__ __forceinline__ Scope scope_of(const Params& p, Tile tile) {
  Digits number{int(blockIdx.x)};
  Scope at;
  at.kernel_w = number.next(p.tap_blocks) * tile.taps_w;
  at.kernel_h = number.next(p.row_blocks) * block_rows(p, tile);
  at.output = number.next(p.out_blocks) * block_outputs(p);
  at.input = number.next(p.in_blocks) * block_inputs(p, tile);
  at.group = number.next(p.groups);
  at.piece = number.rest;
  at.begin = static_cast<int>(int64_t{p.steps} * at.piece / p.split);
  at.end = static_cast<int>(int64_t{p.steps} * (at.piece + 1) / p.split);
  return at;
}

// A step: strip by strip, row by row. The first one of a strip shares no line with the one before.
struct Step {
  int n, tile, h;
  bool fresh;
  template <class Params>
  __device__ __forceinline__ Step(const Params& p, int begin, int step) {
    const int strip = p.by_rows.quotient(step);
    h = step - strip * static_cast<int>(p.by_rows.divisor);
    n = p.by_tiles.quotient(strip);
    tile = strip - n * static_cast<int>(p.by_tiles.divisor);
    fresh = h == 0 || step == begin;
  }
};
// From its first line's slot to that of the next step.
template <class Params>
__device__ __forceinline__ int next_slot(const Params& p, int slot, bool fresh) {
  slot += fresh ? p.lines : p.new_lines;
  return slot >= p.slots ? slot - p.slots : slot;
}
// Of one of a step's lines, the first of which has `slot`.
template <class Params>
__device__ __forceinline__ int slot_of_line(const Params& p, int slot, int line) {
  return slot + line >= p.slots ? slot + line - p.slots : slot + line;
}

// The row of dY that a step starts with, and the column.
__device__ __forceinline__ int first_row(const Params& p, const Scope& at, const Step& step) {
  return step.h * p.stride_h - p.pad_h + at.kernel_h * p.dilation_h;
}
template <class T, int ROW>
__device__ __forceinline__ int first_column(const Params& p, const Scope& at, const Step& step) {
  const int pixels = p.chunks * kChunkWords * (4 / int(sizeof(T)));
  return step.tile * pixels * kTiles[ROW].stride - p.pad_w + at.kernel_w;
}

template <class T, int ROW>
__device__ __forceinline__ void bring_x(const Params& p, const Scope& at, const Step& step,
                                        uint32_t stage) {
  constexpr Tile tile = kTiles[ROW];
  constexpr int kVector = 16 / int(sizeof(T));
  const T* const x = static_cast<const T*>(p.x);
  const int shift = p.chunk_shift + 3, vectors = p.chunks * 8;
  const int channel = (step.n * p.groups + at.group) * p.rows + at.input;
  const int column = step.tile * vectors * kVector;
#pragma unroll 2
  for (int i = threadIdx.x; i < block_inputs(p, tile) << shift; i += threads(tile)) {
    const int c = i >> shift, vector = i & vectors - 1, w = column + vector * kVector;
    const bool there = at.input + c < p.rows && w < p.x_w;
    copy_async<16>(stage + c * p.x_pitch + vector * 16,
                   there ? x + ((channel + c) * p.x_h + step.h) * p.x_w + w : x, there);
  }
}

// 16 bytes of dY that start in front of a row: what is there comes word by word.
template <class T>
__device__ __forceinline__ void bring_front(const T* y, int from, int row, int end, uint32_t to) {
  constexpr int kNumbers = 4 / int(sizeof(T));
#pragma unroll 1
  for (int word = 0; word < 4; ++word, from += kNumbers, to += 4) {
    const bool first = from >= row && from < end;
    if constexpr (sizeof(T) == 2) {
      const bool second = from + 1 >= row && from + 1 < end;
      if (first != second) {
        const auto* const numbers = reinterpret_cast<const unsigned short*>(y) + from;
        store_shared_2(to, first ? __ldg(numbers) : static_cast<unsigned short>(0));
        store_shared_2(to + 2, second ? __ldg(numbers + 1) : static_cast<unsigned short>(0));
        continue;
      }
    }
    copy_async<4>(to, first ? y + from : y, first);
  }
}

// A line of dY, of `all` channels from `channel` on, of which `channels` exist, from `column` on. What lies beside a row
// becomes zeros; in front of it only where a tap reads that.
template <class T, int THREADS, class Params>
__device__ __forceinline__ void bring_line(const Params& p, int channel, int channels, int all,
                                           int h, int column, uint32_t to_line) {
  constexpr int kVector = 16 / int(sizeof(T));
  const T* const y = static_cast<const T*>(p.y);
  const bool row_there = h >= 0 && h < p.y_h;
  for (int i = threadIdx.x; i < all * p.y_vectors; i += THREADS) {
    const int c = p.by_vectors.quotient(i), vector = i - c * p.y_vectors;
    const uint32_t to = to_line + c * p.y_pitch + vector * 16;
    const int row = (channel + c) * p.y_plane + h * p.y_w, end = row + p.y_w;
    const int from = (row + column & -kVector) + vector * kVector;
    const bool there = row_there && c < channels && from + kVector > row && from < end;
    if (there && column < 0 && from < row) {
      bring_front(y, from, row, end, to);
    } else {
      copy_async_16_part(to, there ? y + from : y,
                         there ? min(end - from, kVector) * int(sizeof(T)) : 0);
    }
  }
}

// Lines of dY that the step before had not.
template <class T, int ROW>
__device__ __forceinline__ void bring_y(const Params& p, const Scope& at, const Step& step,
                                        int slot, uint32_t slots) {
  constexpr Tile tile = kTiles[ROW];
  const int channel = (step.n * p.groups + at.group) * p.columns + at.output;
  const int column = first_column<T, ROW>(p, at, step);
  const int channels = min(block_outputs(p), p.columns - at.output);
#pragma unroll 1
  for (int line = step.fresh ? 0 : p.lines - p.new_lines; line < p.lines; ++line)
    bring_line<T, threads(tile)>(p, channel, channels, block_outputs(p),
                                 first_row(p, at, step) + line * p.line_step, column,
                                 slots + slot_of_line(p, slot, line) * slot_bytes(p));
}

// What those who multiply need to know of a stage: where in dY its first line starts, of the block's first channel, and
// that line's slot.
__device__ __forceinline__ uint32_t told_at(const Params& p, uint32_t slots, int stage) {
  return slots + p.slots * slot_bytes(p) + stage * kToldBytes;
}
template <class T, int ROW>
__device__ __forceinline__ void tell(const Params& p, const Scope& at, const Step& step, int slot,
                                     uint32_t to) {
  if (threadIdx.x != 0) return;
  const int channel = (step.n * p.groups + at.group) * p.columns + at.output;
  const int first =
      channel * p.y_plane + first_row(p, at, step) * p.y_w + first_column<T, ROW>(p, at, step);
  const uint32_t told[2] = {static_cast<uint32_t>(first), static_cast<uint32_t>(slot)};
  store_shared<2>(to, told);
}

}  // namespace convt2d::cuda::heddle
