// What a block of quilt works on, and its chunks on their way to shared memory: four warps ask for them, a few ahead, and
// move pixels of x to where they belong.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/barrier.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/strict_product.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/quilt/quilt_config.h"

namespace convt2d::cuda::quilt {

struct Scope {
  int group, row, column;  // the first input and output channel of the group's
  int piece, begin, end;   // chunks
};
// Neighbouring blocks read the same pixels of dY, at about the same time.
__device__ __forceinline__ Scope scope_of(const Params& p, Tile tile) {
  int rest = blockIdx.x;
  const auto digit = [&](int count) {
    const int found = rest % count;
    rest /= count;
    return found;
  };
  Scope at;
  at.row = digit(p.row_blocks) * tile.width;
  at.column = digit(p.column_blocks) * p.channels;
  at.group = digit(p.groups);
  at.piece = rest;
  const int64_t chunks = int64_t{p.batch} * p.image_chunks;
  at.begin = static_cast<int>(chunks * at.piece / p.split);
  at.end = static_cast<int>(chunks * (at.piece + 1) / p.split);
  return at;
}

// A chunk, and then the next ones.
struct Chunk {
  int image, part;  // of the image's
  __device__ __forceinline__ Chunk(const Params& p, int chunk) {
    image = chunk / p.image_chunks;
    part = chunk - image * p.image_chunks;
  }
  __device__ __forceinline__ void advance(const Params& p) {
    if (++part == p.image_chunks) part = 0, ++image;
  }
  __device__ __forceinline__ bool last(const Params& p) const { return part == p.image_chunks - 1; }
  __device__ __forceinline__ int rows(const Params& p) const {
    return last(p) ? p.last_rows : p.chunk_rows;
  }
  __device__ __forceinline__ int steps(const Params& p) const {
    return last(p) ? p.last_steps : p.steps;
  }
  // Its first number of the block's first channel of x, and of a channel of dY.
  __device__ __forceinline__ int first_x(const Params& p, const Scope& at) const {
    const int channel = (image * p.groups + at.group) * p.rows + at.row;
    return (channel * p.x_h + part * p.chunk_rows) * p.x_w;
  }
  __device__ __forceinline__ int first_y(const Params& p, const Scope& at, int channel) const {
    const int all = (image * p.groups + at.group) * p.columns + at.column + channel;
    return all * p.y_plane + part * p.chunk_rows * p.kernel_h * p.y_row;
  }
};

// Beside `full`, when dY is there, and `empty`: when x has come, to a stage or as it lies, and when it is as it is
// multiplied.
__device__ __forceinline__ uint32_t come_barrier(const StageRing& ring, int index) {
  return ring.barriers + kRawAt + index * 8;
}
__device__ __forceinline__ uint32_t raw_at(const Params& p, const StageRing& ring, int index) {
  return ring.stages + p.stages * p.stage_bytes + index * p.raw_bytes;
}
__device__ __forceinline__ uint32_t shifted_barrier(const StageRing& ring) {
  return ring.barriers + kShiftedAt + ring.index * 8;
}

// Where in a run of dY pixels stand, for a thread's words of x: of a pixel, or of two, the second one's in the upper half
// if its place does not follow. What does not exist is zero in x: any pixel will do. By all threads.
template <class T, int ROW>
__device__ __forceinline__ void list_pixels(const Params& p, uint32_t shared) {
  constexpr int kSize = sizeof(T), kPixels = 4 / kSize, kTap = kTiles[ROW].taps * kSize;
  const int words = p.steps * kWords;
  for (int i = threadIdx.x; i < 2 * words; i += kThreads) {
    const int of_last = i >= words, word = i - of_last * words;
    const int row = p.by_words.quotient(word), column = (word - row * p.row_words) * kPixels;
    uint32_t where = 0;
    if (row < (of_last ? p.last_rows : p.chunk_rows)) {
      where = row * p.run_bytes + column * kTap;
      if (kPixels == 2 && kTap == 8) where |= (column + 1 < p.x_w ? where + kTap : where) << 16;
    }
    store_shared_4(shared + kTablesAt + of_last * kTableBytes + word * 4, where);
  }
}

// Whether x comes as it lies, and is moved.
template <class T>
__device__ __forceinline__ bool moves(const Params& p) {
  return sizeof(T) == 4 || p.piece == 0;
}

// x of a chunk as it lies, by all helpers.
template <class T, int ROW>
__device__ __forceinline__ void bring_raw(const Params& p, const Scope& at, uint32_t raw,
                                          const Chunk& chunk, int helper) {
  constexpr int kNumbers = 16 / int(sizeof(T));
  const int first = chunk.first_x(p, at), plane = p.x_h * p.x_w, rows = p.rows - at.row;
  for (int i = helper; i < kTiles[ROW].width * p.raw_pieces; i += kHelpers) {
    const int channel = p.by_pieces.quotient(i), piece = i - channel * p.raw_pieces;
    const int number = (first + channel * plane & -kNumbers) + piece * kNumbers;
    const int left = channel < rows ? max(0, min(kNumbers, p.x_numbers - number)) : 0;
    copy_async_16_part(raw + channel * p.raw_pitch + piece * 16,
                       static_cast<const T*>(p.x) + (left > 0 ? number : 0), left * int(sizeof(T)));
  }
}

// The same to where it belongs, BYTES at once: those of 32 bytes of four channels by lanes that are neighbours.
template <class T, int ROW, int BYTES>
__device__ __forceinline__ void bring_x(const Params& p, const Scope& at, uint32_t stage,
                                        const Chunk& chunk, int helper) {
  constexpr int kNumbers = BYTES / int(sizeof(T)), kLanes = kStep / BYTES;
  constexpr int kFours = kTiles[ROW].width / 4, kAtOnceHere = kHelpers / (4 * kLanes);
  const int first = chunk.first_x(p, at), plane = p.x_h * p.x_w, rows = p.rows - at.row;
  const int numbers = chunk.rows(p) * p.x_w, piece = helper % kLanes, in_four = helper / kLanes % 4;
  for (int i = helper / (4 * kLanes); i < kFours * p.steps; i += kAtOnceHere) {
    const int four = p.by_steps.quotient(i), step = i - four * p.steps;
    const int channel = four * 4 + in_four, number = (step * kLanes + piece) * kNumbers;
    const bool there = channel < rows && number < numbers;
    copy_async<BYTES>(stage + step * step_bytes(kTiles[ROW]) + channel * kStep +
                          (piece * BYTES ^ (channel & 4) << 2),
                      static_cast<const T*>(p.x) + (there ? first + channel * plane + number : 0),
                      there);
  }
}

// Asks for a chunk, but for x that is to be moved; all helpers.
template <class T, int ROW>
__device__ __forceinline__ void ask(const Params& p, const Scope& at, const StageRing& ring,
                                    const Chunk& chunk, int helper) {
  const int channels = min(p.channels, p.columns - at.column);
  const uint32_t run = chunk.rows(p) * p.run_bytes;
  if (helper == 0) barrier_expect(ring.full(), channels * run);
  if (helper < channels)
    copy_run(ring.stage() + p.y_at + helper * p.y_pitch,
             static_cast<const T*>(p.y) + chunk.first_y(p, at, helper), run, ring.full());
  if (!moves<T>(p)) {
    if (p.piece == 16) {
      bring_x<T, ROW, 16>(p, at, ring.stage(), chunk, helper);
    } else {
      bring_x<T, ROW, 8>(p, at, ring.stage(), chunk, helper);
    }
    copy_async_arrive(come_barrier(ring, ring.index));
  }
}

// Pixels of x to where they belong: eight lanes take 32 bytes of a channel, a word each. TF32 is rounded here. All helpers.
template <class M, int ROW>
__device__ __forceinline__ void shift(const Params& p, const Scope& at, uint32_t stage,
                                      uint32_t raw, const Chunk& chunk, int helper) {
  using T = typename M::Element;
  constexpr Tile tile = kTiles[ROW];
  constexpr int kSize = sizeof(T), kPixels = 4 / kSize, kRound = tile.width / (kHelpers / kWords);
  constexpr int kAhead = kRound < 4 ? kRound : 4;
  const int first = chunk.first_x(p, at), plane = p.x_h * p.x_w, rows = chunk.rows(p);
  const int word = helper % kWords, first_channel = helper / kWords;
  const uint32_t swizzle = (first_channel & 4) << 2;  // the second half of 256 bytes
  uint32_t to = stage + first_channel * kStep + (word * 4 ^ swizzle);
  for (int step = 0; step < chunk.steps(p); ++step, to += step_bytes(tile)) {
    const int in_chunk = step * kWords + word;
    const int row = p.by_words.quotient(in_chunk),
              column = (in_chunk - row * p.row_words) * kPixels;
    const int left = row < rows ? p.x_w - column : 0;
    const uint32_t there = left >= kPixels ? ~0u : left > 0 ? 0xffffu : 0u;
    const uint32_t in_row = left > 0 ? (row * p.x_w + column) * kSize : 0;
    const uint32_t from = raw + first_channel * p.raw_pitch + in_row;
    uint32_t number = first + first_channel * plane;
#pragma unroll 1
    for (int i = 0; i < kRound; i += kAhead) {
      uint32_t low[kAhead], high[kAhead], select[kAhead];
#pragma unroll
      for (int j = 0; j < kAhead; ++j, number += kHelpers / kWords * plane) {
        const uint32_t place =
            from + (i + j) * (kHelpers / kWords) * p.raw_pitch + (number * kSize & 15);
        low[j] = load_shared_4(place & ~3u);
        if constexpr (kSize == 2) {
          high[j] = load_shared_4((place & ~3u) + 4);
          select[j] = place & 2 ? 0x5432 : 0x3210;
        }
      }
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        uint32_t pixels = low[j];
        if constexpr (kSize == 2) pixels = __byte_perm(low[j], high[j], select[j]);
        pixels &= there;
        const uint32_t place = to + (i + j) * (kHelpers / kWords) * kStep;
        store_shared_4(place, M::round(pixels));
        if constexpr (tile.strict)
          store_shared_4(place + p.steps * step_bytes(tile), cut_off(pixels));
      }
    }
  }
}

// All of a block's chunks, by the helpers. A chunk is moved before another one is asked for, whose stage may be that of
// the chunk that is multiplied.
constexpr int kHelpersMeet = 1;  // named barrier
template <class M, int ROW>
__device__ __forceinline__ void help(const Params& p, const Scope& at, StageRing& ring) {
  using T = typename M::Element;
  const int helper = threadIdx.x - kConsumers;
  StageRing asked = ring;
  Ring raw;
  Chunk next(p, at.begin), next_raw = next, here = next;
  int ahead = at.begin;
  const auto ask_next = [&] {
    if (ahead == at.end) return;
    barrier_wait(asked.empty(), asked.parity ^ 1);
    ask<T, ROW>(p, at, asked, next, helper);
    asked.advance();
    next.advance(p);
    ++ahead;
  };
  const auto bring_next_raw = [&](int index) {
    bring_raw<T, ROW>(p, at, raw_at(p, ring, index), next_raw, helper);
    copy_async_arrive(come_barrier(ring, index));
    next_raw.advance(p);
  };
  for (int i = 0; i < kRaws && moves<T>(p) && at.begin + i < at.end; ++i) bring_next_raw(i);
  for (int i = 1; i < p.stages; ++i) ask_next();
  for (int k = at.begin; k < at.end; ++k, ring.advance(), here.advance(p)) {
    if (moves<T>(p)) {
      barrier_wait(come_barrier(ring, raw.stage), raw.parity);
      shift<M, ROW>(p, at, ring.stage(), raw_at(p, ring, raw.stage), here, helper);
    } else {
      barrier_wait(come_barrier(ring, ring.index), ring.parity);
    }
    fence_for_wgmma();
    barrier_arrive(shifted_barrier(ring));
    if (moves<T>(p)) {
      barrier_among(kHelpersMeet, kHelpers);  // all have moved theirs
      if (k + kRaws < at.end) bring_next_raw(raw.stage);
      raw.advance(kRaws);
    }
    ask_next();
  }
}

}  // namespace convt2d::cuda::quilt
