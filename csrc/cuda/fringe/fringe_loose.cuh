// Loose planes: 16-bit planes of x, or rows of dY, that are no whole 16 bytes, and rows of four taps of step 2, the first of which
// is a pixel to the left.
//
// The copy engine starts at whole 16 bytes. Of x, some planes (`classes`) are whole 16 bytes together, so those that start
// alike are rows of one box, up to three words too early; consumers fetch them from there to registers, word by word. Rows of
// the sum are then sorted by class. Of dY, planes are whole, so it comes as runs of whole rows, without anything beside them;
// lists say where a pixel's words are, and which pixels have none beside them.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/barrier.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/fringe/fringe_scope.cuh"

namespace convt2d::cuda::fringe {

// How many pixels later than at a multiple of 16 bytes a class's planes start.
__device__ __forceinline__ int class_lead(const Params& p, int which) {
  return which * p.x_h * p.x_w & 7;
}

// Asks for a tile of x, class by class; and for an image of dY.
template <class T>
__device__ __forceinline__ void ask_loose(const Params& p, const Maps& maps, int row, int image,
                                          int tile, uint32_t stage, uint32_t full) {
  barrier_expect(full, p.classes * p.class_rows * kLooseRow);
#pragma unroll 1
  for (int i = 0; i < p.classes; ++i)
    copy_box(stage + i * p.class_rows * kLooseRow, &maps.x, full,
             i * p.x_h * p.x_w - class_lead(p, i) + tile * kTilePixels<T>, row / p.classes, image,
             0);
}
__device__ __forceinline__ void ask_loose_image(const Params& p, const Maps& maps, int channel,
                                                int image, uint32_t raw, uint32_t barrier) {
  barrier_expect(barrier, p.raw_bytes);
#pragma unroll 1
  for (int i = 0; i < p.raw_boxes; ++i)
    copy_box(raw + i * raw_box_bytes(p), &maps.y, barrier, i * p.raw_rows * p.y_w / 2, channel,
             image, 0);
}

// A row of the sum, in a tile of x that classes of planes share.
__device__ __forceinline__ uint32_t loose_row(const Params& p, int row) {
  return row * kLooseRow + class_lead(p, row / p.class_rows) * 2;
}
__device__ __forceinline__ int channel_of_row(const Params& p, int row) {
  const int which = row / p.class_rows;
  return (row - which * p.class_rows) * p.classes + which;
}

// For each row of taps and pixel of an image, which word of a channel's dY holds what its two middle taps want; and of pairs of
// pixels, which have a neighbour to the left, and which to the right. By all threads.
__device__ __forceinline__ int loose_pixels(const Params& p) {
  return (p.x_h * p.x_w + 63) / 64 * 64;
}
__device__ __forceinline__ uint32_t loose_place(const Params& p, int tap_h, int pixel) {
  const int h = p.by_width.quotient(pixel), w = pixel - h * p.x_w,
            y = h * p.stride_h - p.pad_h + tap_h * p.dilation_h;
  if (h >= p.x_h || y < 0 || y >= p.y_h) return kNowhere;
  const int box = y / p.raw_rows;
  return box * raw_box_bytes(p) / 4 + (y - box * p.raw_rows) * (p.y_w / 2) + w;
}
__device__ __forceinline__ void list_loose(const Params& p, uint32_t shared) {
  const int pixels = loose_pixels(p), pairs = pixels / 2;
  for (int i = threadIdx.x; i < p.kernel_h * pairs; i += kThreads) {
    const int tap_h = i / pairs, pixel = (i - tap_h * pairs) * 2;
    store_shared_4(shared + kPixelsAt + i * 4,
                   loose_place(p, tap_h, pixel) | loose_place(p, tap_h, pixel + 1) << 16);
  }
  const uint32_t sides = shared + kPixelsAt + p.kernel_h * pixels * 2;
  for (int i = threadIdx.x; i < pairs; i += kThreads) {
    const int w = i * 2 - p.by_width.quotient(i * 2) * p.x_w, next = w + 1 == p.x_w ? 0 : w + 1;
    store_shared_4(sides + i * 4, (w == 0 ? 0 : 0xffffu) | (next == 0 ? 0 : 0xffff0000u));
    store_shared_4(sides + (pairs + i) * 4,
                   (w == p.x_w - 1 ? 0 : 0xffffu) | (next == p.x_w - 1 ? 0 : 0xffff0000u));
  }
  if (threadIdx.x < kZeroBytes / 4) store_shared_4(sides + (2 * pairs + threadIdx.x) * 4, 0);
}

// Writes the other operand out, by some warps: a lane has eight pixels of a channel and a row of taps. Its words hold what taps 1 and 2 want of a pixel; tap 0 is in the word before it, tap 3 in the one behind.
template <class T>
__device__ __forceinline__ void write_loose(const Params& p, const Scope& at, StageRing ring,
                                            int warp) {
  constexpr int kEight = 8;
  const int pixels = loose_pixels(p), lane = threadIdx.x % 32;
  const uint32_t places = ring.barriers + kPixelsAt, sides = places + p.kernel_h * pixels * 2,
                 zeros = sides + pixels * 4 + 4;
  Ring raw;
  // Warps take what a tile has by turns, and go on from there in the next one: it seldom is the same for all.
  int turn = warp;
#pragma unroll 1
  for (int index = at.begin; index < at.end; ++index, raw.advance(kRaws)) {
    const Band band = Band::of<T>(p, index);
    const uint32_t from = raw_at(p, ring, raw.stage);
    barrier_wait(raw_barrier(ring, raw.stage), raw.parity);
#pragma unroll 1
    for (int tile = 0; tile < band.tiles; ++tile, ring.advance()) {
      // Eights of the steps that are multiplied: all, or so many as one or two have.
      const int steps = steps_of<T>(p, band, tile), shift = steps > 2 ? 3 : steps;
      const int piece = lane & (1 << shift) - 1, rows = p.columns * p.kernel_h;
      const int eight = tile * (kTilePixels<T> / kEight) + piece;
      uint32_t left[4], right[4];
      load_shared_16(sides + eight * 16, left);
      load_shared_16(sides + pixels * 2 + eight * 16, right);
      barrier_wait(ring.empty(), ring.parity ^ 1);
#pragma unroll 1
      for (; turn << (5 - shift) < rows; turn += kWriters) {
        const int row = (turn << (5 - shift)) + (lane >> shift),
                  channel = p.by_kernel_h.quotient(row), tap_h = row - channel * p.kernel_h;
        if (row >= rows) continue;
        uint32_t place[4], word[kEight + 2];
        load_shared_16(places + (tap_h * pixels + eight * kEight) * 2, place);
        const uint32_t mine = from + channel * p.raw_words * 4;
#pragma unroll
        for (int i = 0; i < kEight; ++i) {
          const uint32_t number = __byte_perm(place[i / 2], 0, i % 2 ? 0x4432 : 0x4410),
                         here = number == kNowhere ? zeros : mine + number * 4;
          word[i + 1] = load_shared_4(here);
          if (i == 0) word[0] = load_shared_4(here - 4);
          if (i == kEight - 1) word[kEight + 1] = load_shared_4(here + 4);
        }
        const int column = row * kLooseTaps;
        const uint32_t to = ring.stage() + p.y_at + column * kRow;
        const auto store = [&](int tap, auto halves) {
          uint32_t run[4];
#pragma unroll
          for (int k = 0; k < 4; ++k) run[k] = halves(k);
          store_shared_16(to + tap * kRow + ((piece ^ column % 8 ^ tap) << 4), run);
        };
        store(0,
              [&](int k) { return __byte_perm(word[2 * k], word[2 * k + 1], 0x7632) & left[k]; });
        store(1, [&](int k) { return __byte_perm(word[2 * k + 1], word[2 * k + 2], 0x5410); });
        store(2, [&](int k) { return __byte_perm(word[2 * k + 1], word[2 * k + 2], 0x7632); });
        store(3, [&](int k) {
          return __byte_perm(word[2 * k + 2], word[2 * k + 3], 0x5410) & right[k];
        });
      }
      turn -= (rows + (32 >> shift) - 1) >> (5 - shift);
      fence_for_wgmma();
      __syncwarp();
      if (lane == 0) barrier_arrive(ring.full());
    }
    __syncwarp();  // all have read the image
    if (lane == 0) barrier_arrive(raw_barrier(ring, raw.stage) + 8);
  }
}

}  // namespace convt2d::cuda::fringe
