// How both operands of fringe come to shared memory.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/barrier.cuh"
#include "cuda/device/elect.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/uniform.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/fringe/fringe_loose.cuh"
#include "cuda/fringe/fringe_scope.cuh"

namespace convt2d::cuda::fringe {

// From a pixel's place to what a column reads, and places of a band's pixels: bytes. By all threads.
template <class T>
__device__ __forceinline__ void list_places(const Params& p, int most_columns, uint32_t shared) {
  constexpr int kSize = sizeof(T), kPixels = kTilePixels<T>;
  const int taps = p.kernel_h * p.kernel_w;
  for (int i = threadIdx.x; i < most_columns; i += kThreads) {
    const int column = i < p.columns * taps ? i : 0;
    const int channel = column / taps, tap = column - channel * taps;
    const int tap_h = tap / p.kernel_w, tap_w = tap - tap_h * p.kernel_w;
    store_shared_4(shared + kColumnsAt + i * 4,
                   (channel * p.lines + tap_h * p.dilation_h) * p.line_bytes + p.lead +
                       (tap_w * p.dilation_w - p.pad_w) * kSize);
  }
  const int pixels = p.flat ? p.band_rows * p.x_w : p.band_rows * p.band_tiles * kPixels;
  const int listed = (pixels + kPixels - 1) / kPixels * kPixels;
  for (int i = threadIdx.x; i < listed; i += kThreads) {
    uint32_t place = 0;  // of what does not exist, any
    if (i < pixels) {
      const int row = p.by_width.quotient(i), column = i - row * int(p.by_width.divisor);
      place = row * p.stride_h * p.line_bytes + column * p.stride_w * kSize;
    }
    store_shared_4(shared + kPixelsAt + i * 4, place);
  }
}

// Asks for all that a block needs, by one thread: x tile by tile, dY band by band, the next one's while a band is multiplied.
template <class T, bool LOOSE>
__device__ __forceinline__ void ask(const Params& p, const Maps& maps, const Scope& at,
                                    StageRing ring) {
  constexpr int kSize = sizeof(T);
  const int row = at.group * p.rows + at.row;
  Ring raw;
  const auto ask_band = [&](int index) {
    if (index >= at.end) return;
    const Band band = Band::of<T>(p, index);
    const uint32_t barrier = raw_barrier(ring, raw.stage);
    barrier_wait(barrier + 8, raw.parity ^ 1);
    if constexpr (LOOSE) {
      ask_loose_image(p, maps, at.group * p.columns, band.image, raw_at(p, ring, raw.stage),
                      barrier);
    } else {
      barrier_expect(barrier, p.raw_bytes);
      copy_box(raw_at(p, ring, raw.stage), &maps.y, barrier,
               (band.column * p.stride_w * kSize - p.lead) / 4, band.row * p.stride_h - p.pad_h,
               at.group * p.columns, band.image);
    }
    raw.advance(kRaws);
  };
  ask_band(at.begin);
#pragma unroll 1
  for (int index = at.begin; index < at.end; ++index) {
    const Band band = Band::of<T>(p, index);
    const int early = min(p.stages, band.tiles) - 1;
    TileWalk walk;
#pragma unroll 1
    for (int tile = 0; tile < band.tiles; ++tile) {
      barrier_wait(ring.empty(), ring.parity ^ 1);
      if constexpr (LOOSE) {
        ask_loose<T>(p, maps, row, band.image, tile, ring.stage(), ring.full());
      } else {
        barrier_expect(ring.full(), p.box_rows * kRow);
        if (p.flat)
          copy_box(ring.stage(), &maps.x, ring.full(), band.row * p.x_w + tile * kTilePixels<T>,
                   row, 0, band.image);
        else
          copy_box(ring.stage(), &maps.x, ring.full(), band.column + walk.column * kTilePixels<T>,
                   row, band.row + walk.row, band.image);
      }
      ring.advance();
      walk.advance(p, band);
      if (tile == early) ask_band(index + 1);
    }
  }
}

// A number of dY, or two 16-bit ones as a word.
template <class T>
__device__ __forceinline__ uint32_t fetch(const uint32_t (&place)[4 / sizeof(T)], uint32_t from) {
  if constexpr (sizeof(T) == 4) {
    return load_shared_4(from + place[0]);
  } else {
    return __byte_perm(load_shared<unsigned short>(from + place[0]),
                       load_shared<unsigned short>(from + place[1]), 0x5410);
  }
}

// Writes the other operand out, by some warps: eight lanes have 16 bytes each of a column's pixels, as four words. The second
// four lanes fetch theirs in another order, or they would meet the first four in the same banks where the stride is 2.
template <class T, int ROW>
__device__ __forceinline__ void write_tiles(const Params& p, const Scope& at, StageRing ring,
                                            int warp) {
  constexpr int kNumbers = 4 / int(sizeof(T)), kPixels = kTilePixels<T>;
  constexpr int kFours = columns(kTiles[ROW]) / 4, kMost = (kFours + kWriters - 1) / kWriters;
  const int lane = threadIdx.x % 32, piece = lane % 8, in_four = lane / 8;
  const bool turned = piece & 4;
  const uint32_t places = ring.barriers + kPixelsAt + piece * 4 * kNumbers * 4;
  uint32_t offset[kMost], to[kMost];
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    const int column = min(warp + i * kWriters, kFours - 1) * 4 + in_four;
    offset[i] = load_shared_4(ring.barriers + kColumnsAt + column * 4);
    to[i] = p.y_at + column * kRow + ((piece ^ column % 8) << 4);
  }
  Ring raw;
#pragma unroll 1
  for (int index = at.begin; index < at.end; ++index, raw.advance(kRaws)) {
    const Band band = Band::of<T>(p, index);
    const uint32_t from = raw_at(p, ring, raw.stage);
    barrier_wait(raw_barrier(ring, raw.stage), raw.parity);
    TileWalk walk;
#pragma unroll 1
    for (int tile = 0; tile < band.tiles; ++tile, walk.advance(p, band), ring.advance()) {
      uint32_t place[4][kNumbers];
#pragma unroll
      for (int i = 0; i < kNumbers; ++i) {
        uint32_t four[4];
        load_shared_16(places + walk.listed * kPixels * 4 + i * 16, four);
#pragma unroll
        for (int j = 0; j < 4; ++j) place[(i * 4 + j) / kNumbers][j % kNumbers] = from + four[j];
      }
#pragma unroll
      for (int j = 0; j < 2; ++j)
#pragma unroll
        for (int i = 0; i < kNumbers; ++i) {
          const uint32_t one = place[j][i], other = place[j + 2][i];
          place[j][i] = turned ? other : one;
          place[j + 2][i] = turned ? one : other;
        }
      const int pixels = pixels_of<T>(p, band, tile), left = pixels - piece * 4 * kNumbers;
      barrier_wait(ring.empty(), ring.parity ^ 1);
#pragma unroll
      for (int i = 0; i < kMost; ++i) {
        if (warp + i * kWriters >= kFours) break;
        uint32_t word[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) word[j] = fetch<T>(place[j], offset[i]);
        uint32_t sorted[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) sorted[j] = turned ? word[j ^ 2] : word[j];
        if (pixels < kPixels)
#pragma unroll
          for (int j = 0; j < 4; ++j)
            sorted[j] &= left >= (j + 1) * kNumbers ? ~0u : left > j * kNumbers ? 0xffffu : 0u;
        store_shared_16(ring.stage() + to[i], sorted);
      }
      fence_for_wgmma();
      __syncwarp();
      if (lane == 0) barrier_arrive(ring.full());
    }
    __syncwarp();  // all have read the band
    if (lane == 0) barrier_arrive(raw_barrier(ring, raw.stage) + 8);
  }
}

}  // namespace convt2d::cuda::fringe
