// What a block of treadle works on, and x and dY on their way to shared memory.
#pragma once

#include <cuda.h>

#include "cuda/device/async_copy.cuh"
#include "cuda/device/barrier.cuh"
#include "cuda/device/digits.cuh"
#include "cuda/device/memory.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/strict_product.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/treadle/treadle_config.h"

namespace convt2d::cuda::treadle {

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
  at.kernel_w = number.next(p.tap_blocks) * tile.taps;
  at.kernel_h = number.next(p.row_blocks) * kRows;
  at.output = number.next(p.out_blocks) * kChannels;
  at.input = number.next(p.in_blocks) * kChannels;
  at.group = number.next(p.groups);
  at.piece = number.rest;
  at.begin = static_cast<int>(int64_t{p.steps} * at.piece / p.split);
  at.end = static_cast<int>(int64_t{p.steps} * (at.piece + 1) / p.split);
  return at;
}

// A step: strip by strip, two lines by two. The first one of a strip, or of the block, shares no rows of x with the one
// before.
struct Step {
  int n, tile, pair;
  __device__ __forceinline__ Step(const Params& p, int step) {
    const int strip = p.by_pairs.quotient(step);
    pair = step - strip * p.line_pairs;
    n = p.by_tiles.quotient(strip);
    tile = strip - n * p.tiles;
  }
  __device__ __forceinline__ void advance(const Params& p) {
    if (++pair < p.line_pairs) return;
    pair = 0;
    if (++tile == p.tiles) tile = 0, ++n;
  }
  __device__ __forceinline__ int line() const { return pair * 2; }
  __device__ __forceinline__ int column() const { return tile * kColumns; }
  __device__ __forceinline__ int batches(const Params& p) const {
    return tile + 1 == p.tiles ? p.last_batches : kBatches;
  }
};

// The row of x that the first of two pairs starts with, and the column of dY that the first tap meets first.
__device__ __forceinline__ int first_row(const Params& p, const Scope& at, int line) {
  return line + p.pad_h - at.kernel_h - (kRows - 1);
}
__device__ __forceinline__ int first_column(const Params& p, const Scope& at, const Step& step) {
  return step.column() - p.pad_w + at.kernel_w;
}

__device__ __forceinline__ uint32_t slot_full(uint32_t shared, int slot) {
  return shared + slot * 16;
}
__device__ __forceinline__ uint32_t stage_full(uint32_t shared, int stage) {
  return shared + kStageBarriers + stage * 16;
}
__device__ __forceinline__ uint32_t slot_at(uint32_t shared, int slot) {
  return shared + kXAt + slot * kPairBytes;
}

// NCHW: a pair of rows of x, by the copy engine; one thread. What is not there becomes zeros. The first slot has its copy.
template <int ROW>
__device__ __forceinline__ void ask_for_rows(const Scope& at, const Params& p, const Step& step,
                                             int row, const CUtensorMap* map, uint32_t shared,
                                             int slot) {
  constexpr int kSlots = slots(kTiles[ROW]), kPlaneBytes = plane_bytes(kTiles[ROW]);
  const uint32_t barrier = slot_full(shared, slot);
  barrier_expect(barrier, (slot == 0 ? 4 : 2) * kPairBytes);
#pragma unroll 1
  for (int to = slot; to <= kSlots; to += kSlots)
#pragma unroll 1
    for (int half = 0; half < 2; ++half)
      copy_box(slot_at(shared, to) + half * kPlaneBytes, map, barrier, step.column() + half * kHalf,
               at.group * p.rows + at.input, row, step.n);
}

// Channels last: two lines of dY, likewise.
template <int ROW>
__device__ __forceinline__ void ask_for_lines(const Scope& at, const Params& p, const Step& step,
                                              const CUtensorMap* map, uint32_t shared, int stage) {
  constexpr int kBytes = stage_bytes(kTiles[ROW], true);
  const uint32_t barrier = stage_full(shared, stage);
  barrier_expect(barrier, kBytes);
  copy_box(shared + y_at(kTiles[ROW]) + stage * kBytes, map, barrier,
           at.group * p.columns + at.output, first_column(p, at, step), step.line(), step.n);
}

// NCHW: two lines of dY, by a warpgroup: a warp has sixteen channels of a line, its lanes 64 words of each, and eight lanes
// what is beyond these of one channel of four.
struct Lines {
  uint32_t word[16][2], beyond[4];
};
template <int ROW>
__device__ __forceinline__ void load_lines(const Scope& at, const Params& p, const Step& step,
                                           Lines& lines) {
  const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
  const int first = first_column(p, at, step), channels = p.columns - at.output;
  const float* const y = static_cast<const float*>(p.y) + step.n * p.y_stride[0] +
                         (at.group * p.columns + at.output) * p.y_stride[1] +
                         step.line() * p.y_stride[2] + first;
  const auto there = [&](int line, int word) {
    return step.line() + line < p.y_h && first + word >= 0 && first + word < p.y_w;
  };
  {
    const int line = warp / 2, from = warp % 2 * 16;
    const float* const mine = y + line * p.y_stride[2] + from * p.y_stride[1] + lane;
    const int left[2] = {there(line, lane) ? channels - from : 0,
                         there(line, lane + 32) ? channels - from : 0};
#pragma unroll
    for (int c = 0; c < 16; ++c)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        lines.word[c][half] = load_if<4>(mine + c * p.y_stride[1] + half * 32, c, left[half]);
  }
  const int word = kColumns + thread % 8;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int line = i / 2, channel = i % 2 * 16 + thread / 8;
    lines.beyond[i] =
        load_if<4>(y + line * p.y_stride[2] + channel * p.y_stride[1] + word, channel,
                   word < kColumns + kTiles[ROW].taps - 1 && there(line, word) ? channels : 0);
  }
}
template <class M, int ROW>
__device__ __forceinline__ void put_lines(uint32_t to, const Lines& lines) {
  constexpr int kPitch = pitch_words(kTiles[ROW]) * 4;
  const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
  // [line][channel]: warps follow each other there.
#pragma unroll
  for (int c = 0; c < 16; ++c)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      store_shared_4(to + (warp * 16 + c) * kPitch + (lane + half * 32) * 4,
                     M::round(lines.word[c][half]));
  if (thread % 8 >= kTiles[ROW].taps - 1) return;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    store_shared_4(to + (i * 16 + thread / 8) * kPitch + (kColumns + thread % 8) * 4,
                   M::round(lines.beyond[i]));
}

// Channels last: a pair of rows of x, by a warpgroup: a warp has 32 pixels of a row, a lane a channel of each.
struct Pixels {
  uint32_t word[kHalf];
};
__device__ __forceinline__ void load_pixels(const Scope& at, const Params& p, const Step& step,
                                            int row, Pixels& pixels) {
  const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
  const int h = row + warp / 2, w = step.column() + warp % 2 * kHalf;
  const bool there = h >= 0 && h < p.x_h && at.input + lane < p.rows;
  const float* const x = static_cast<const float*>(p.x) + step.n * p.x_stride[0] +
                         h * p.x_stride[2] + w * p.x_stride[3] + at.group * p.rows + at.input +
                         lane;
  const int left = there ? p.x_w - w : 0;
#pragma unroll
  for (int i = 0; i < kHalf; ++i) pixels.word[i] = load_if<4>(x + i * p.x_stride[3], i, left);
}
template <class M, int ROW>
__device__ __forceinline__ void put_pixels(uint32_t shared, int slot, const Pixels& pixels) {
  constexpr int kSlots = slots(kTiles[ROW]), kPlaneBytes = plane_bytes(kTiles[ROW]);
  const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
#pragma unroll 1
  for (int to = slot; to <= kSlots; to += kSlots) {
    const uint32_t row =
        slot_at(shared, to) + warp % 2 * kPlaneBytes + warp / 2 * kRowBytes + lane * 128;
#pragma unroll
    for (int piece = 0; piece < 8; ++piece) {
      uint32_t four[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        four[i] = M::round(pixels.word[piece / 2 * kSlice + piece % 2 + i * 2]);
      store_shared_16(row + ((piece ^ lane % 8) << 4), four);
    }
  }
}

// NCHW, strict fp32: a pair of rows of x, by a warpgroup: a warp has 32 columns of a row, eight lanes those of a channel.
struct Columns {
  uint32_t word[8][4];
};
__device__ __forceinline__ void load_columns(const Scope& at, const Params& p, const Step& step,
                                             int row, Columns& columns) {
  const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
  const int h = row + warp / 2, w = step.column() + warp % 2 * kHalf + lane % 8 * 4;
  const int channel = lane / 8, channels = p.rows - at.input;
  const float* const x = static_cast<const float*>(p.x) + step.n * p.x_stride[0] +
                         (at.group * p.rows + at.input + channel) * p.x_stride[1] +
                         h * p.x_stride[2] + w;
  const int left = h >= 0 && h < p.x_h && w < p.x_w ? channels : 0;
#pragma unroll
  for (int i = 0; i < 8; ++i)
    load_16_if(x + i * 4 * p.x_stride[1], channel + i * 4, left, columns.word[i]);
}
template <int ROW>
__device__ __forceinline__ void put_columns(uint32_t shared, int slot, const Columns& columns) {
  constexpr int kSlots = slots(kTiles[ROW]), kPlaneBytes = plane_bytes(kTiles[ROW]);
  const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
  const uint32_t row =
      slot_at(shared, slot) + warp % 2 * kPlaneBytes + warp / 2 * kRowBytes + lane / 8 * 128;
  // Of channels lane / 8 and four further on, and all that are as many eights from there.
  const uint32_t swizzled[2] = {row + ((lane ^ lane / 8) % 8 << 4),
                                row + ((lane ^ lane / 8 ^ 4) % 8 << 4)};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const uint32_t place = swizzled[i % 2] + i * 4 * 128;
    uint32_t low[4];
#pragma unroll
    for (int w = 0; w < 4; ++w) low[w] = cut_off(columns.word[i][w]);
    store_shared_16(place, columns.word[i]);
    store_shared_16(place + 2 * kPlaneBytes, low);
    if (slot != 0) continue;
    store_shared_16(place + kSlots * kPairBytes, columns.word[i]);
    store_shared_16(place + kSlots * kPairBytes + 2 * kPlaneBytes, low);
  }
}

// Two warpgroups: pairs of rows, and the lines that are multiplied with a pair and the one before it, in turn.
template <class M, int ROW, bool CHANNELS_LAST>
__device__ __forceinline__ void bring(const Params& p, const Scope& at, const CUtensorMap* map,
                                      uint32_t shared) {
  constexpr Tile tile = kTiles[ROW];
  const int group = threadIdx.x / 128 - kGroups;
  const bool asks = threadIdx.x % 128 == 0;
  Ring slot, stage;
  Step step(p, at.begin);
  int turn = 0;
#pragma unroll 1
  for (int i = at.begin; i < at.end; ++i, step.advance(p)) {
    const bool fresh = i == at.begin || step.pair == 0;
#pragma unroll 1
    for (int second = fresh ? 0 : 1; second < 2; ++second) {
      if (turn == group) {
        const int row = first_row(p, at, step.line()) + second * 2;
        const uint32_t to = shared + y_at(tile) + stage.stage * stage_bytes(tile, CHANNELS_LAST);
        const uint32_t slot_empty = slot_full(shared, slot.stage) + 8,
                       stage_empty = stage_full(shared, stage.stage) + 8;
        if constexpr (CHANNELS_LAST) {
          Pixels pixels;
          load_pixels(at, p, step, row, pixels);
          if (second && asks) {
            barrier_wait(stage_empty, stage.parity ^ 1);
            ask_for_lines<ROW>(at, p, step, map, shared, stage.stage);
          }
          barrier_wait(slot_empty, slot.parity ^ 1);
          put_pixels<M, ROW>(shared, slot.stage, pixels);
          fence_for_wgmma();
          barrier_arrive(slot_full(shared, slot.stage));
        } else if constexpr (tile.strict) {
          {
            Columns columns;
            load_columns(at, p, step, row, columns);
            barrier_wait(slot_empty, slot.parity ^ 1);
            put_columns<ROW>(shared, slot.stage, columns);
          }
          fence_for_wgmma();
          barrier_arrive(slot_full(shared, slot.stage));
          if (second) {
            Lines lines;
            load_lines<ROW>(at, p, step, lines);
            barrier_wait(stage_empty, stage.parity ^ 1);
            put_lines<M, ROW>(to, lines);
            barrier_arrive(stage_full(shared, stage.stage));
          }
        } else {
          Lines lines;
          if (second) load_lines<ROW>(at, p, step, lines);
          if (asks) {
            barrier_wait(slot_empty, slot.parity ^ 1);
            ask_for_rows<ROW>(at, p, step, row, map, shared, slot.stage);
          }
          if (second) {
            barrier_wait(stage_empty, stage.parity ^ 1);
            put_lines<M, ROW>(to, lines);
            barrier_arrive(stage_full(shared, stage.stage));
          }
        }
      }
      turn ^= 1;
      slot.advance(slots(tile));
      if (second) stage.advance(stages(tile));
    }
  }
}

}  // namespace convt2d::cuda::treadle
