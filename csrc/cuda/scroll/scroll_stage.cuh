// How pixels and weights come to shared memory.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/barrier.cuh"
#include "cuda/device/memory.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/tensor_copy.cuh"
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
  Descent part(p, tile, at, group);
  while (part.next(p, tile)) {
    const int end = min(part.last, p.x_h);
    for (int row = max(part.row, 0); row < end; ++row, ring.advance()) {
      barrier_wait(ring.empty(), ring.parity ^ 1);
      barrier_expect(ring.full(), bytes);
      for (int chunk = 0; chunk < p.chunks; ++chunk)
        copy_box(ring.stage() + chunk * p.chunk_bytes, &map, ring.full(), chunk * (p.line / 2),
                 part.q + taps.low, row, part.n);
    }
  }
}

// Channels of a thread are neighbours: a run of 8 in 32 columns, of 4 in the 16 that may be left. Where a channel of a tile's
// `width` is among its columns.
CONVT2D_HOST_DEVICE constexpr int column_of(int channel, int width) {
  const int group = channel / 32 * 32, inside = channel - group;
  const int run = group + 32 <= width ? 8 : 4;
  return group + inside % run / 2 * 8 + inside / run * 2 + inside % 2;
}

// Whether a word's two numbers are finite.
template <class T>
__device__ __forceinline__ bool are_finite(uint32_t word) {
  constexpr uint32_t kExponent = std::is_same_v<T, __half> ? 0x7c00 : 0x7f80;
  return (word & kExponent) != kExponent && (word >> 16 & kExponent) != kExponent;
}

// All weights, 8 channels of y for two of x at a time. Returns whether they are finite.
template <class T, int ROW>
__device__ __forceinline__ bool bring_weights(const Params& p, const Scope& at, uint32_t shared) {
  constexpr Tile tile = kTiles[ROW];
  constexpr int kEights = tile.width / 8, kTogether = 4;
  const Taps& taps = p.taps[at.phase];
  const int chunk_channels = p.line / 2, pairs = p.chunks * chunk_channels / 2,
            of_row = pairs * kEights, all = taps.count * tile.rows * of_row;
  const T* const weight = static_cast<const T*>(p.weight);
  bool finite = true;
#pragma unroll 1
  for (int start = threadIdx.x; start < all; start += kTogether * consumers(tile)) {
    uint32_t word[kTogether][2][4];
    uint32_t to[kTogether];
    int eight[kTogether];
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      const int i = start + k * consumers(tile);
      const int line = i / of_row, pair = i % of_row / kEights, tap = line / tile.rows,
                kh = line - tap * tile.rows;
      eight[k] = i % kEights;
      const int c = 2 * pair, chunk = c / chunk_channels,
                channel = at.column_tile * tile.width + eight[k] * 8;
      to[k] = i < all ? shared + p.weights_at +
                            ((chunk * taps.count + tap) * columns_of(tile) + kh * tile.width) * p.line +
                            (c - chunk * chunk_channels) * 2
                      : 0;
      const T* const from = weight + c * p.weight_reduce + channel * p.weight_column +
                            kh * p.weight_h + (taps.tap + tap * taps.tap_step) * p.weight_w;
#pragma unroll
      for (int of_two = 0; of_two < 2; ++of_two) {
        const int left = i < all && channel < p.columns ? p.reduce : 0;
        if (p.weight_mode == kColumnVectors) {
          load_16_if(from + of_two * p.weight_reduce, c + of_two, left, word[k][of_two]);
        } else {
          uint32_t half[8];
#pragma unroll
          for (int j = 0; j < 8; ++j)
            half[j] = load_if<2>(from + (of_two * p.weight_reduce + j * p.weight_column),
                                 c + of_two, left);
#pragma unroll
          for (int j = 0; j < 4; ++j) word[k][of_two][j] = half[2 * j] | half[2 * j + 1] << 16;
        }
      }
    }
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      if (to[k] == 0) continue;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        finite &= are_finite<T>(word[k][0][j]) && are_finite<T>(word[k][1][j]);
#pragma unroll
        for (int odd = 0; odd < 2; ++odd) {
          const uint32_t place =
              to[k] + column_of(eight[k] * 8 + 2 * j + odd, tile.width) * p.line;
          store_shared_4(place ^ (place >> 7 & (p.line / 16 - 1)) << 4,
                         __byte_perm(word[k][0][j], word[k][1][j], odd ? 0x7632 : 0x5410));
        }
      }
    }
  }
  return finite;
}

// The same where 8 channels of x are 16 bytes.
template <class T, int ROW>
__device__ __forceinline__ bool bring_deep_weights(const Params& p, const Scope& at,
                                                   uint32_t shared) {
  constexpr Tile tile = kTiles[ROW];
  constexpr int kTogether = 8;
  const Taps& taps = p.taps[at.phase];
  const int chunk_channels = p.line / 2, eights = p.chunks * chunk_channels / 8,
            of_tap = eights * columns_of(tile), all = taps.count * of_tap;
  bool finite = true;
#pragma unroll 1
  for (int start = threadIdx.x; start < all; start += kTogether * consumers(tile)) {
    uint32_t word[kTogether][4], to[kTogether];
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      const int i = start + k * consumers(tile), tap = i / of_tap, c = i % eights * 8,
                column = i % of_tap / eights, kh = column / tile.width,
                of_tile = column - kh * tile.width,
                channel = at.column_tile * tile.width + of_tile, chunk = c / chunk_channels;
      to[k] = i < all ? shared + p.weights_at +
                            ((chunk * taps.count + tap) * columns_of(tile) + kh * tile.width +
                             column_of(of_tile, tile.width)) *
                                p.line +
                            (c - chunk * chunk_channels) * 2
                      : 0;
      load_16_if(static_cast<const T*>(p.weight) + c + channel * p.weight_column +
                     kh * p.weight_h + (taps.tap + tap * taps.tap_step) * p.weight_w,
                 c, i < all && channel < p.columns ? p.reduce : 0, word[k]);
    }
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      if (to[k] == 0) continue;
#pragma unroll
      for (int j = 0; j < 4; ++j) finite &= are_finite<T>(word[k][j]);
      store_shared_16(to[k] ^ (to[k] >> 7 & (p.line / 16 - 1)) << 4, word[k]);
    }
  }
  return finite;
}

template <class T, int ROW>
__device__ __forceinline__ void bring_bias(const Params& p, const Scope& at, uint32_t shared) {
  constexpr int kWidth = kTiles[ROW].width;
  if (threadIdx.x >= kWidth) return;
  const int channel = at.column_tile * kWidth + threadIdx.x;
  const float bias = p.bias && channel < p.columns ? load(static_cast<const T*>(p.bias) + channel) : 0.f;
  store_shared_4(shared + kBiasAt + threadIdx.x * 4, __float_as_uint(bias));
}

}  // namespace convt2d::cuda::scroll
