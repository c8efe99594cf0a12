// How rows of planes come to shared memory, and are turned there.
#pragma once

#include <type_traits>

#include "cuda/device/wgmma.cuh"
#include "cuda/scroll/scroll_planes.h"
#include "cuda/scroll/scroll_stage.cuh"

namespace convt2d::cuda::scroll {

// A ring's lines, a part for each of its tasks; as Descent of scroll_walk.cuh.
class TapeDescent {
 public:
  int q;  // the strip's first position on the tape
  int row, first, last;

  __device__ __forceinline__ TapeDescent(const PlaneParams& p, const Scope& at, int ring)
      : task_(at.walker * p.rings + ring) {}
  __device__ __forceinline__ bool next(const PlaneParams& p, Tile tile) {
    if (task_ >= p.tasks) return false;
    const int part = p.by_strips.quotient(task_), strip = task_ - part * p.strips_w,
              inside = part * p.task_rows;
    q = strip * kPositions;
    first = p.first_row + inside;
    last = first + min(p.task_rows, p.steps - inside);
    row = first - reach_of(tile);
    task_ += p.walkers[0] * p.rings;
    return true;
  }

 private:
  int task_;
};

// All chunks of all rows of x that go to a ring, one after the other: of each, PIECES in the warp's turn.
template <int PIECES>
class Chunks {
 public:
  int row = 0, chunk, piece;
  __device__ __forceinline__ Chunks(const PlaneParams& p, const Scope& at, int ring, int turner)
      : chunk(p.chunks - 1), piece(PIECES), turner_(turner), part_(p, at, ring) {}
  __device__ __forceinline__ int strip() const { return part_.q; }
  __device__ __forceinline__ bool next(const PlaneParams& p, Tile tile) {
    if constexpr (PIECES > 1) {
      if ((piece += p.turners) < PIECES) return true;
    }
    piece = turner_;
    if (++chunk < p.chunks) return true;
    chunk = 0;
    ++row;
    while (row >= end_) {
      if (!part_.next(p, tile)) return false;
      row = max(part_.row, 0);
      end_ = min(part_.last, p.x_h);
    }
    return true;
  }

 private:
  int turner_;
  TapeDescent part_;
  int end_ = 0;
};

// What a warp asks for of a line: its channels of a chunk, in sets of copies. Lanes are a set's copies, of as many channels as
// have room. Instructions of the warp are what this takes: all but an address are found once for a strip.
template <class T, int BYTES, int TURNED>
class Copies {
 public:
  __device__ __forceinline__ explicit Copies(const PlaneParams& p) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kMostSets; ++i) {
      if (i >= p.sets) break;
      const int channel = lane / p.set_copies[i];
      copy_[i] = p.set_first[i] + lane - channel * p.set_copies[i];
      channel_[i] = channel < p.set_channels[i] ? channel : TURNED;
    }
  }
  // Of a strip.
  __device__ __forceinline__ void aim(const PlaneParams& p, int strip) {
    constexpr int kPixels = BYTES / sizeof(T);
#pragma unroll
    for (int i = 0; i < kMostSets; ++i) {
      if (i >= p.sets) break;
      // Pixels of an image lie on the tape from its first position on.
      const int place = strip + copy_[i] * kPixels - p.early - p.lead + p.low,
                n = p.by_tape.quotient(max(place, 0)), pixel = place - n * p.tape;
      const bool inside = copy_[i] < p.copies && n < p.batch && pixel >= 0 && pixel < p.x_w;
      from_[i] = inside ? spot_of<true>(n, channel_[i], p.reduce, 0, p.x_h, pixel, p.x_w) : -1;
    }
  }
  // `left`: channels that there are.
  __device__ __forceinline__ void ask(const PlaneParams& p, int row, int channel, int left,
                                      uint32_t raw) const {
    const int plane = p.x_h * p.x_w, line = channel * plane + row * p.x_w;
#pragma unroll
    for (int i = 0; i < kMostSets; ++i) {
      if (i >= p.sets) break;
      const int step = p.set_channels[i];
      const uint32_t to = raw + channel_[i] * p.raw_pitch + copy_[i] * BYTES;
      const T* const from =
          static_cast<const T*>(p.source) + (from_[i] < 0 ? 0 : uint32_t(from_[i] + line));
      const int end = copy_[i] < p.copies ? TURNED : 0;
      if (left >= TURNED)
        ask_whole(from, from_[i] < 0 ? 0 : step * plane, to, step * p.raw_pitch, channel_[i], end,
                  p.set_turns[i], p.set_turns[i] * step, from_[i] >= 0);
      else
        ask_some(from, step * plane, to, step * p.raw_pitch, channel_[i], end, step,
                 from_[i] < 0 ? 0 : left);
    }
  }

 private:
  static __device__ __forceinline__ void ask_whole(const T* from, int next, uint32_t to, int up,
                                                   int channel, int end, int turns, int asked,
                                                   bool inside) {
    if (channel >= end) return;
#pragma unroll 4
    for (int left = turns; left > 0; --left, from += next, to += up)
      copy_async<BYTES>(to, from, inside);
    if (asked + channel < end) copy_async<BYTES>(to, from, inside);
  }
  static __device__ __forceinline__ void ask_some(const T* from, int next, uint32_t to, int up,
                                                  int channel, int end, int step, int there) {
    const T* const source = from;
#pragma unroll 1
    for (int c = channel; c < end; c += step, from += next, to += up)
      copy_async<BYTES>(to, c < there ? from : source, c < there);
  }

  // Of a lane: its copy, its first channel, and elements to its pixel there in row 0; or -1.
  int32_t copy_[kMostSets], channel_[kMostSets], from_[kMostSets];
};

// 16 bits: four tiles of 8 channels x 8 pixels at a time. `depth`: where the warp's channels begin in a chunk.
template <int TURNED, int LINE>
__device__ __forceinline__ void turn_halves(const PlaneParams& p, int depth, uint32_t raw,
                                            uint32_t stage) {
  constexpr int kAcross = TURNED < 32 ? 2 : 4, kPixels = 32 / kAcross, kTogether = 3;
  const int tile = threadIdx.x % 32 / 8, inside = threadIdx.x % 8, channel = tile % kAcross * 8,
            pixel = tile / kAcross * 8;
#pragma unroll 1
  for (int c = 0; c < TURNED; c += 8 * kAcross) {
    uint32_t from = raw + (c + channel + inside) * p.raw_pitch + pixel * 2,
             to = swizzled(stage + (pixel + inside) * LINE + (depth + c + channel) * 2, LINE);
    int left = p.raw_pixels / kPixels;
    const auto turn = [&](auto count) {
      constexpr int kCount = decltype(count)::value;
      uint32_t word[kCount][4];
#pragma unroll
      for (int k = 0; k < kCount; ++k) ldmatrix_x4_turned(word[k], from + k * kPixels * 2);
#pragma unroll
      for (int k = 0; k < kCount; ++k) store_tiles(to + k * kPixels * LINE, word[k]);
      from += kCount * kPixels * 2;
      to += kCount * kPixels * LINE;
      left -= kCount;
    };
#pragma unroll 1
    while (left >= kTogether) turn(std::integral_constant<int, kTogether>());
#pragma unroll 1
    while (left > 0) turn(std::integral_constant<int, 1>());
  }
}

// Words: four channels of a pixel, COUNT such fours from a lane's first.
template <int COUNT, int LINE>
__device__ __forceinline__ void turn_fours(const PlaneParams& p, int depth, uint32_t raw,
                                           uint32_t stage, int pixel, int four) {
  uint32_t word[COUNT][4], from = raw + four * 4 * p.raw_pitch + pixel * 4;
#pragma unroll
  for (int k = 0; k < COUNT; ++k)
#pragma unroll
    for (int j = 0; j < 4; ++j, from += p.raw_pitch) word[k][j] = load_shared_4(from);
  const uint32_t to = stage + pixel * LINE, mask = swizzled(to, LINE) ^ to;
#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
#pragma unroll
    for (uint32_t& each : word[k]) each = MmaTF32::round(each);
    store_shared_16(to + ((depth / 4 + four + k) * 16 ^ mask), word[k]);
  }
}

// Of 32 pixels at a time; of what is left, of eight, for four times as many channels.
template <int TURNED, int LINE>
__device__ __forceinline__ void turn_words(const PlaneParams& p, int depth, uint32_t raw,
                                           uint32_t stage) {
  constexpr int kFours = TURNED / 4, kTogether = kFours < 4 ? kFours : 4;
  const int lane = threadIdx.x % 32;
  int pixel = 0;
#pragma unroll 1
  for (; pixel + 32 <= p.raw_pixels; pixel += 32)
#pragma unroll 1
    for (int four = 0; four < kFours; four += kTogether)
      turn_fours<kTogether, LINE>(p, depth, raw, stage, pixel + lane, four);
#pragma unroll 1
  for (; pixel < p.raw_pixels; pixel += 8)
#pragma unroll 1
    for (int four = lane / 8; four < kFours; four += 4)
      turn_fours<1, LINE>(p, depth, raw, stage, pixel + lane % 8, four);
}

// A warp's pieces of all that goes to a ring: asked for, and turned when they have come.
template <class T, int ROW, int BYTES, int SLICES, int PIECES>
__device__ __forceinline__ void feed(const PlaneParams& p, const Scope& at, int ring_number,
                                     int turner, uint32_t shared) {
  constexpr Tile tile = kTiles[ROW];
  constexpr int kLine = SLICES * kSliceBytes, kChannels = kLine / sizeof(T),
                kTurned = kChannels / PIECES;
  const uint32_t mine =
      shared + p.raw_at + (ring_number * p.turners + turner) * p.raw_stages * p.raw_bytes;
  Chunks<PIECES> asked(p, at, ring_number, turner), turned(p, at, ring_number, turner);
  Copies<T, BYTES, kTurned> copies(p);
  int strip = -1;
  bool more = true;
  const auto ask_next = [&](uint32_t raw) {
    more = more && asked.next(p, tile);
    if (more) {
      if (asked.strip() != strip) copies.aim(p, strip = asked.strip());
      const int channel = asked.chunk * kChannels + asked.piece * kTurned;
      copies.ask(p, asked.row, channel, p.reduce - channel, raw);
    }
    copy_async_commit();
  };
  for (int i = 0; i < p.raw_stages; ++i) ask_next(mine + i * p.raw_bytes);
  StageRing ring = ring_of(p, shared, ring_number);
  int slot = 0;
  while (turned.next(p, tile)) {
    const uint32_t raw = mine + slot * p.raw_bytes;
    const int depth = turned.piece * kTurned;
    copy_async_wait(p.raw_stages - 1);
    __syncwarp();
    barrier_wait(ring.empty(), ring.parity ^ 1);
    const uint32_t first = raw + p.early * int(sizeof(T));
    if constexpr (sizeof(T) == 2) {
      turn_halves<kTurned, kLine>(p, depth, first, ring.stage());
    } else {
      turn_words<kTurned, kLine>(p, depth, first, ring.stage());
    }
    fence_for_wgmma();
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(ring.full());
    ask_next(raw);
    if (++slot == p.raw_stages) slot = 0;
    if (turned.piece + p.turners >= PIECES) ring.advance();
  }
}

// A warp, all chunks that go to a ring: words, which stay as they lie.
template <class T, int ROW, int BYTES, int SLICES>
__device__ __forceinline__ void bring_chunks(const PlaneParams& p, const Scope& at, int ring_number,
                                             uint32_t shared) {
  constexpr int kChannels = SLICES * kSliceBytes / sizeof(T);
  Chunks<1> asked(p, at, ring_number, 0);
  Copies<T, BYTES, kChannels> copies(p);
  StageRing ring = ring_of(p, shared, ring_number);
  int strip = -1;
  for (; asked.next(p, kTiles[ROW]); ring.advance()) {
    if (asked.strip() != strip) copies.aim(p, strip = asked.strip());
    barrier_wait(ring.empty(), ring.parity ^ 1);
    const int channel = asked.chunk * kChannels;
    copies.ask(p, asked.row, channel, p.reduce - channel, ring.stage());
    copy_async_arrive(ring.full());
  }
}

}  // namespace convt2d::cuda::scroll
