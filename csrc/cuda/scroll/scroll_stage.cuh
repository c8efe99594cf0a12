// How pixels and weights come to shared memory.
#pragma once

#include <type_traits>

#include "cuda/device/async_copy.cuh"
#include "cuda/device/barrier.cuh"
#include "cuda/device/memory.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/uniform.cuh"
#include "cuda/scroll/scroll_walk.cuh"

namespace convt2d::cuda::scroll {

__device__ __forceinline__ StageRing ring_of(const Params& p, uint32_t shared, int group) {
  return {shared + group * kMostStages * 16,
          shared + p.stages_at + group * p.stages * p.stage_bytes, p.stages, p.stage_bytes};
}

// One thread, all rows that a warpgroup will read.
__device__ __forceinline__ void bring_rows(const Params& p, Tile tile, const CUtensorMap& map,
                                           const Scope& at, int group, StageRing ring) {
  const Taps& taps = p.taps[at.phase];
  if (taps.count == 0) return;
  const int bytes = p.chunks * (p.eights ? kEight : 1) * p.pixels * p.line;
  Descent part(p, at, group);
  while (part.next(p, tile)) {
    const int end = min(part.last, p.x_h);
    for (int row = max(part.row, 0); row < end; ++row, ring.advance()) {
      barrier_wait(ring.empty(), ring.parity ^ 1);
      barrier_expect(ring.full(), bytes);
      for (int chunk = 0; chunk < p.chunks; ++chunk)
        copy_box(ring.stage() + chunk * p.chunk_bytes, &map, ring.full(),
                 chunk * (p.line / p.number_bytes), part.q + taps.low, row, part.n);
    }
  }
}

// Channels of a thread are neighbours, 16 bytes of them: a run of 8 in 32 columns, of words of 4 in 16, or of 4 in the 16
// columns of 16 bits that may be left.
CONVT2D_HOST_DEVICE constexpr int run_of(int channel, int width, int bytes) {
  return bytes == 2 && channel / 32 * 32 + 32 <= width ? 8 : 4;
}
// Where a channel of a tile is among its columns.
CONVT2D_HOST_DEVICE constexpr int column_of(int channel, Tile tile, int bytes) {
  if (tile.phases > 0) return channel;  // planes
  const int width = tile.width;
  const int run = run_of(channel, width, bytes), group = channel / (4 * run) * 4 * run,
            inside = channel - group;
  return group + inside % run / 2 * 8 + inside / run * 2 + inside % 2;
}

// Whether a word's number, or two of 16 bits, are finite.
template <class T>
__device__ __forceinline__ bool are_finite(uint32_t word) {
  if constexpr (sizeof(T) == 4) return (word & 0x7f800000) != 0x7f800000;
  constexpr uint32_t kExponent = std::is_same_v<T, __half> ? 0x7c00 : 0x7f80;
  return (word & kExponent) != kExponent && (word >> 16 & kExponent) != kExponent;
}

// A swizzled place, of 16 bytes in lines of so many.
__device__ __forceinline__ uint32_t swizzled(uint32_t at, int line) {
  return at ^ (at >> 7 & (line / 16 - 1)) << 4;
}

// Where 16 bytes of a column's channels of x stand, swizzled.
template <int ROW>
__device__ __forceinline__ uint32_t place_of(const Params& p, const Taps& taps, uint32_t weights,
                                             int tap, int kh, int channel, int bytes, int vector) {
  constexpr Tile tile = kTiles[ROW];
  const int chunk = vector >> p.vector_bits, inside = vector - (chunk << p.vector_bits);
  const uint32_t at = weights +
                      ((chunk * taps.count + tap) * columns_of(tile) + kh * tile.width +
                       column_of(channel, tile, bytes)) *
                          p.line +
                      inside * 16;
  return swizzled(at, p.line);
}

// All weights, for a column 16 bytes of channels of x at a time, by one load or one for each. Returns whether they are finite.
template <class T, int ROW>
__device__ __forceinline__ bool bring_weights(const Params& p, const Scope& at, uint32_t shared) {
  constexpr Tile tile = kTiles[ROW];
  constexpr int kBytes = sizeof(T), kVector = 16 / kBytes, kTogether = 8;
  const Taps& taps = p.taps[at.phase];
  const int all = taps.count * columns_of(tile) * p.vectors;
  const bool whole = p.weight_mode == kDepthVectors, deep = p.weight_reduce < p.weight_column;
  const int threads = 128 * p.warpgroups;
  bool finite = true;
#pragma unroll 1
  for (int start = threadIdx.x; start < all; start += kTogether * threads) {
    uint32_t word[kTogether][4], to[kTogether];
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      // Neighbours in memory are neighbouring threads.
      const int i = start + k * threads, first = deep ? i : i / tile.width,
                of_vectors = p.by_vectors.quotient(first), vector = first - of_vectors * p.vectors;
      const int line = deep ? of_vectors / tile.width : of_vectors,
                of_tile = deep ? of_vectors % tile.width : i % tile.width, tap = line / tile.rows,
                kh = line - tap * tile.rows, depth = vector * kVector,
                channel = at.column_tile * tile.width + of_tile,
                left = i < all && channel < p.columns ? p.reduce : 0;
      to[k] = i < all
                  ? place_of<ROW>(p, taps, shared + p.weights_at, tap, kh, of_tile, kBytes, vector)
                  : 0;
      const T* const from = static_cast<const T*>(p.weight) + depth * p.weight_reduce +
                            channel * p.weight_column + kh * p.weight_h +
                            (taps.tap + tap * taps.tap_step) * p.weight_w;
      if (whole) {
        load_16_if(from, depth, left, word[k]);
      } else {
        uint32_t number[kVector];
#pragma unroll
        for (int j = 0; j < kVector; ++j)
          number[j] = load_if<kBytes>(from + j * p.weight_reduce, depth + j, left);
#pragma unroll
        for (int j = 0; j < 4; ++j)
          word[k][j] = kBytes == 4
                           ? number[j]
                           : number[j * kVector / 4] | number[j * kVector / 4 + kVector / 8] << 16;
      }
    }
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      if (to[k] == 0) continue;
#pragma unroll
      for (uint32_t& each : word[k]) {
        finite &= are_finite<T>(each);
        if constexpr (kBytes == 4) each = MmaTF32::round(each);
      }
      store_shared_16(to[k], word[k]);
    }
  }
  return finite;
}

// The same where 16 bytes are channels of y: squares of numbers, turned.
template <class T, int ROW>
__device__ __forceinline__ bool bring_squares(const Params& p, const Scope& at, uint32_t shared) {
  constexpr Tile tile = kTiles[ROW];
  constexpr int kBytes = sizeof(T), kVector = 16 / kBytes, kAcross = tile.width / kVector;
  const Taps& taps = p.taps[at.phase];
  const int all = taps.count * tile.rows * p.vectors * kAcross;
  bool finite = true;
#pragma unroll 1
  for (int i = threadIdx.x; i < all; i += 128 * p.warpgroups) {
    const int column = i % kAcross * kVector, rest = i / kAcross,
              line = p.by_vectors.quotient(rest), vector = rest - line * p.vectors,
              depth = vector * kVector, tap = line / tile.rows, kh = line - tap * tile.rows,
              channel = at.column_tile * tile.width + column;
    const T* const from = static_cast<const T*>(p.weight) + depth * p.weight_reduce + channel +
                          kh * p.weight_h + (taps.tap + tap * taps.tap_step) * p.weight_w;
    uint32_t word[kVector][4];
#pragma unroll
    for (int j = 0; j < kVector; ++j)
      load_16_if(from + j * p.weight_reduce, depth + j, channel < p.columns ? p.reduce : 0,
                 word[j]);
#pragma unroll
    for (int j = 0; j < kVector; ++j)
#pragma unroll
      for (const uint32_t each : word[j]) finite &= are_finite<T>(each);
#pragma unroll
    for (int c = 0; c < kVector; ++c) {
      uint32_t turned[4];
#pragma unroll
      for (int j = 0; j < 4; ++j)
        turned[j] = kBytes == 4 ? MmaTF32::round(word[j][c % 4])
                                : __byte_perm(word[2 * j % kVector][c / 2 % 4],
                                              word[(2 * j + 1) % kVector][c / 2 % 4],
                                              c % 2 ? 0x7632 : 0x5410);
      store_shared_16(
          place_of<ROW>(p, taps, shared + p.weights_at, tap, kh, column + c, kBytes, vector),
          turned);
    }
  }
  return finite;
}

// Whichever of the two the weights allow.
template <class T, int ROW>
__device__ __forceinline__ bool bring_all_weights(const Params& p, const Scope& at,
                                                  uint32_t shared) {
  return p.weight_mode == kColumnVectors ? bring_squares<T, ROW>(p, at, shared)
                                         : bring_weights<T, ROW>(p, at, shared);
}

template <class T, int ROW>
__device__ __forceinline__ void bring_bias(const Params& p, const Scope& at, uint32_t shared) {
  constexpr int kWidth = kTiles[ROW].width;
  if (threadIdx.x >= kWidth) return;
  const int channel = at.column_tile * kWidth + threadIdx.x;
  const float bias =
      p.bias && channel < p.columns ? load(static_cast<const T*>(p.bias) + channel) : 0.f;
  store_shared_4(shared + kBiasAt + threadIdx.x * 4, __float_as_uint(bias));
}

}  // namespace convt2d::cuda::scroll
