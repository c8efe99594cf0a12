// How rows of planes come to shared memory, and are turned there.
#pragma once

#include <type_traits>

#include "cuda/device/wgmma.cuh"
#include "cuda/scroll/scroll_planes.h"
#include "cuda/scroll/scroll_stage.cuh"

namespace convt2d::cuda::scroll {

// A warpgroup's lines, a part for each of its tasks; as Descent of scroll_walk.cuh.
class TapeDescent {
 public:
  int q;  // the strip's first position on the tape
  int row, first, last;

  __device__ __forceinline__ TapeDescent(const PlaneParams& p, const Scope& at, int group)
      : task_(at.walker * p.warpgroups + group) {}
  __device__ __forceinline__ bool next(const PlaneParams& p, Tile tile) {
    if (task_ >= p.tasks) return false;
    const int part = p.by_strips.quotient(task_), strip = task_ - part * p.strips_w,
              inside = part * p.task_rows;
    q = strip * kPositions;
    first = p.first_row + inside;
    last = first + min(p.task_rows, p.steps - inside);
    row = first - reach_of(tile);
    task_ += p.walkers[0] * p.warpgroups;
    return true;
  }

 private:
  int task_;
};

// All chunks of all rows of x that a warpgroup reads, one after the other.
class Chunks {
 public:
  int row = 0, chunk;
  __device__ __forceinline__ Chunks(const PlaneParams& p, const Scope& at, int group)
      : chunk(p.chunks - 1), part_(p, at, group) {}
  __device__ __forceinline__ int strip() const { return part_.q; }
  __device__ __forceinline__ bool next(const PlaneParams& p, Tile tile) {
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
  TapeDescent part_;
  int end_ = 0;
};

// What a warp asks for of a line: its channels of a chunk, in sets of copies. Lanes are a set's copies, and as many channels as
// have room.
template <class T, int BYTES, int TURNED>
class Copies {
 public:
  // Of a strip, `depth` channels into a chunk.
  __device__ __forceinline__ void aim(const PlaneParams& p, int strip, int depth) {
    constexpr int kPixels = BYTES / sizeof(T);
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kMostSets; ++i) {
      const int copy = p.set_first[i] + (lane & ((1 << p.set_log[i]) - 1)),
                place = strip + copy * kPixels, n = p.by_tape.quotient(place),
                pixel = place - n * p.tape - p.lead + p.low;
      const bool inside = copy < p.copies && n < p.batch && pixel >= 0 && pixel < p.x_w;
      from_[i] = inside ? spot_of<true>(n, depth + (lane >> p.set_log[i]), p.reduce, 0, p.x_h,
                                        pixel, p.x_w)
                        : -1;
    }
  }
  // `left`: channels that there are.
  __device__ __forceinline__ void ask(const PlaneParams& p, int row, int channel, int left,
                                      uint32_t raw) const {
    const T* const x = static_cast<const T*>(p.source);
    const int lane = threadIdx.x % 32, plane = p.x_h * p.x_w, line = channel * plane + row * p.x_w;
#pragma unroll
    for (int i = 0; i < kMostSets; ++i) {
      if (i >= p.sets) break;
      const int log = p.set_log[i], step = 32 >> log, first = lane >> log,
                copy = p.set_first[i] + (lane & ((1 << log) - 1));
      if (copy >= p.copies) continue;
      const int there = from_[i] < 0 ? 0 : left;
      uint32_t from = from_[i] + line, to = raw + first * p.raw_pitch + copy * BYTES;
#pragma unroll 4
      for (int c = first; c < TURNED; c += step) {
        copy_async<BYTES>(to, x + (c < there ? from : 0), c < there);
        from += step * plane;
        to += step * p.raw_pitch;
      }
    }
  }

 private:
  int32_t from_[kMostSets];  // elements to a lane's pixel in its first channel and row 0; or -1
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

// A warp's part of the channels of all that its warpgroup reads: asked for, and turned when it has come.
template <class T, int ROW, int BYTES, int SLICES>
__device__ __forceinline__ void feed(const PlaneParams& p, const Scope& at, int group, int turner,
                                     uint32_t shared) {
  constexpr Tile tile = kTiles[ROW];
  constexpr int kLine = SLICES * kSliceBytes, kChannels = kLine / sizeof(T),
                kTurned = kChannels / turners(tile, sizeof(T));
  const int depth = turner * kTurned;
  const uint32_t mine =
      shared + p.raw_at + (group * turners(tile, sizeof(T)) + turner) * p.raw_stages * p.raw_bytes;
  Chunks asked(p, at, group), turned(p, at, group);
  Copies<T, BYTES, kTurned> copies;
  int strip = -1;
  bool more = true;
  const auto ask_next = [&](uint32_t raw) {
    more = more && asked.next(p, tile);
    if (more) {
      if (asked.strip() != strip) copies.aim(p, strip = asked.strip(), depth);
      const int channel = asked.chunk * kChannels;
      copies.ask(p, asked.row, channel, p.reduce - channel - depth, raw);
    }
    copy_async_commit();
  };
  for (int i = 0; i < p.raw_stages; ++i) ask_next(mine + i * p.raw_bytes);
  StageRing ring = ring_of(p, shared, group);
  int slot = 0;
  while (turned.next(p, tile)) {
    const uint32_t raw = mine + slot * p.raw_bytes;
    copy_async_wait(p.raw_stages - 1);
    __syncwarp();
    barrier_wait(ring.empty(), ring.parity ^ 1);
    if constexpr (sizeof(T) == 2) {
      turn_halves<kTurned, kLine>(p, depth, raw, ring.stage());
    } else {
      turn_words<kTurned, kLine>(p, depth, raw, ring.stage());
    }
    fence_for_wgmma();
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(ring.full());
    ask_next(raw);
    if (++slot == p.raw_stages) slot = 0;
    ring.advance();
  }
}

}  // namespace convt2d::cuda::scroll
