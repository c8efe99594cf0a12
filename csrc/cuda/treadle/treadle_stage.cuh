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
  __device__ __forceinline__ int column(Tile of) const { return tile * columns(of); }
  __device__ __forceinline__ int batches(const Params& p, Tile of) const {
    return tile + 1 == p.tiles ? p.last_batches : treadle::batches(of);
  }
};

// The row of x that the first of two pairs starts with, and the column of dY that the first tap meets first.
__device__ __forceinline__ int first_row(const Params& p, const Scope& at, int line) {
  return line + p.pad_h - at.kernel_h - (kRows - 1);
}
__device__ __forceinline__ int first_column(const Params& p, const Scope& at, const Step& step,
                                            Tile tile) {
  return step.column(tile) - p.pad_w + at.kernel_w;
}
// How many columns before that one the first word is loaded that has it: in 16 bits words start at even columns of dY, whose
// rows are whole words.
__device__ __forceinline__ int early(const Params& p, const Scope& at, Tile tile) {
  return tile.halves ? (at.kernel_w - p.pad_w) & 1 : 0;
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
      copy_box(slot_at(shared, to) + half * kPlaneBytes, map, barrier,
               step.column(kTiles[ROW]) + half * (columns(kTiles[ROW]) / 2),
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
           at.group * p.columns + at.output, first_column(p, at, step, kTiles[ROW]), step.line(),
           step.n);
}

// NCHW: two lines of dY, by a warpgroup: a warp has sixteen channels of a line, its lanes 64 words of each, and eight lanes
// what is beyond these of one channel of four.
struct Lines {
  uint32_t word[16][2], beyond[4];
};
// The first word beyond; in 16 bits it is the last of the 64 once more, which has to meet the next one.
CONVT2D_HOST_DEVICE constexpr int first_beyond(Tile tile) {
  return kStripBytes / 4 - (tile.halves ? 1 : 0);
}
template <class M, int ROW>
__device__ __forceinline__ void load_lines(const Scope& at, const Params& p, const Step& step,
                                           Lines& lines) {
  constexpr Tile tile = kTiles[ROW];
  using T = typename M::Element;
  constexpr int kNumbers = 4 / sizeof(T);  // of a word
  const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
  const int line = step.line() + warp / 2, from = at.output + warp % 2 * 16;
  const int first = first_column(p, at, step, tile) - early(p, at, tile);
  const int channels = line < p.y_h ? p.columns - from : 0;
  const T* const y = static_cast<const T*>(p.y) + step.n * p.y_stride[0] +
                     (at.group * p.columns + from) * p.y_stride[1] + line * p.y_stride[2] + first;
  const auto left = [&](int word) {
    const int column = first + word * kNumbers;
    return column >= 0 && column < p.y_w ? channels : 0;
  };
  const int left_of[2] = {left(lane), left(lane + 32)};
#pragma unroll
  for (int c = 0; c < 16; ++c)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      lines.word[c][half] =
          load_if<4>(y + c * p.y_stride[1] + (lane + half * 32) * kNumbers, c, left_of[half]);
  const int word = first_beyond(tile) + lane % 8;
  const int left_beyond = word < line_words(tile) ? left(word) : 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int channel = i * 4 + lane / 8;
    lines.beyond[i] =
        load_if<4>(y + channel * p.y_stride[1] + word * kNumbers, channel, left_beyond);
  }
}
template <class M, int ROW>
__device__ __forceinline__ void put_lines(uint32_t to, const Lines& lines) {
  constexpr int kPitch = pitch_words(kTiles[ROW]) * 4;
  const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
  to += warp * 16 * kPitch;  // [line][channel]: warps follow each other there
#pragma unroll
  for (int c = 0; c < 16; ++c)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      store_shared_4(to + c * kPitch + (lane + half * 32) * 4, M::round(lines.word[c][half]));
  const int word = first_beyond(kTiles[ROW]) + lane % 8;
  if (word >= line_words(kTiles[ROW])) return;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    store_shared_4(to + (i * 4 + lane / 8) * kPitch + word * 4, M::round(lines.beyond[i]));
}

// 16 bits: both copies of both lines. Words are those of the even copy as they come, and mixed with their next those of the
// odd one; or, a column early, mixed those of the even copy, and as they come those of the odd one, a word before. Then the
// first of a channel goes where nobody reads, behind the channel before.
template <int ROW>
__device__ __forceinline__ void put_copies(uint32_t to, const Lines& lines, int early) {
  constexpr Tile tile = kTiles[ROW];
  constexpr int kPitch = pitch_words(tile) * 4;
  const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
  to += warp / 2 * line_bytes(tile, false) + warp % 2 * 16 * kPitch;
  const uint32_t as_is = to + early * (copy_bytes(tile) - 4),
                 mixed = to + (1 - early) * copy_bytes(tile);
  const auto of_next = [&](uint32_t word) {
    return __shfl_sync(0xffffffff, word, (lane + 1) % 32);
  };
  const auto mix = [](uint32_t word, uint32_t next) { return __byte_perm(word, next, 0x5432); };
#pragma unroll
  for (int c = 0; c < 16; ++c) {
    const uint32_t (&word)[2] = lines.word[c];
    const uint32_t next[2] = {of_next(lane == 0 ? word[1] : word[0]), of_next(word[1])};
    const uint32_t place = c * kPitch + lane * 4;
    store_shared_4(as_is + place, word[0]);
    store_shared_4(as_is + place + 128, word[1]);
    store_shared_4(mixed + place, mix(word[0], next[0]));
    if (lane < 31) store_shared_4(mixed + place + 128, mix(word[1], next[1]));
  }
  const int word = first_beyond(tile) + lane % 8;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t next = of_next(lines.beyond[i]);
    const uint32_t place = (i * 4 + lane / 8) * kPitch + word * 4;
    if (word >= line_words(tile)) continue;
    store_shared_4(as_is + place, lines.beyond[i]);
    store_shared_4(mixed + place, mix(lines.beyond[i], next));
  }
}

// Channels last: a pair of rows of x, by a warpgroup: a warp has 32 pixels of a row, a lane a channel of each.
struct Pixels {
  uint32_t word[kHalf];
};
__device__ __forceinline__ void load_pixels(const Scope& at, const Params& p, const Step& step,
                                            int row, Pixels& pixels) {
  const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
  const int h = row + warp / 2, w = step.tile * 2 * kHalf + warp % 2 * kHalf;
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
  const int h = row + warp / 2, w = step.tile * 2 * kHalf + warp % 2 * kHalf + lane % 8 * 4;
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

// What all lanes of a warp have written is there: one arrival for them, since lanes arrive one after the other.
__device__ __forceinline__ void arrive_as_warp(uint32_t barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
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
          arrive_as_warp(slot_full(shared, slot.stage));
        } else if constexpr (tile.strict) {
          {
            Columns columns;
            load_columns(at, p, step, row, columns);
            barrier_wait(slot_empty, slot.parity ^ 1);
            put_columns<ROW>(shared, slot.stage, columns);
          }
          fence_for_wgmma();
          arrive_as_warp(slot_full(shared, slot.stage));
          if (second) {
            Lines lines;
            load_lines<M, ROW>(at, p, step, lines);
            barrier_wait(stage_empty, stage.parity ^ 1);
            put_lines<M, ROW>(to, lines);
            arrive_as_warp(stage_full(shared, stage.stage));
          }
        } else {
          Lines lines;
          if (second) load_lines<M, ROW>(at, p, step, lines);
          if (asks) {
            barrier_wait(slot_empty, slot.parity ^ 1);
            ask_for_rows<ROW>(at, p, step, row, map, shared, slot.stage);
          }
          if (second) {
            barrier_wait(stage_empty, stage.parity ^ 1);
            if constexpr (tile.halves) {
              put_copies<ROW>(to, lines, early(p, at, tile));
            } else {
              put_lines<M, ROW>(to, lines);
            }
            arrive_as_warp(stage_full(shared, stage.stage));
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
