// Channels last: boxes of pixels on their way to shared memory, and from there to the tensor core.
//
// A pixel has up to 128 bytes of a slab, whose 16 bytes the copy engine swizzles by the pixel's number. Lanes that fetch at
// once have eight pixels of 16 bits, or four of words, `stride` apart: then they meet in no bank if the stride is odd.
#pragma once

#include "cuda/dimity/dimity_lane.cuh"
#include "cuda/dimity/dimity_warp.cuh"

namespace convt2d::cuda::dimity {

__device__ __forceinline__ void bring_boxes(const Boxes& boxes, int size, const CUtensorMap* map,
                                            uint32_t to, uint32_t barrier, int channel, int pixel,
                                            int row, int n) {
#pragma unroll 1
  for (int slab = 0; slab < boxes.slabs; ++slab)
#pragma unroll 1
    for (int box = 0; box < boxes.count; ++box)
      copy_box(to + slab * boxes.pitch + box * boxes.pixels * boxes.pixel, map, barrier,
               channel + slab * boxes.pixel / size, pixel + box * boxes.pixels, row, n);
}

// All steps of a block, by a lane: what is outside of a tensor comes as zeros.
template <class T>
__device__ __forceinline__ void bring_pixels(const Params& p, const Scope& at, const Maps& maps,
                                             uint32_t shared, uint32_t stages, uint32_t slots) {
  if (threadIdx.x != kWarps * 32) return;
  constexpr int kSize = int(sizeof(T));
  const int channel_x = at.group * p.rows + at.input, channel_y = at.group * p.columns + at.output;
  Ring ring;
  int slot = p.window - 1;
#pragma unroll 1
  for (int number = at.begin; number < at.end; ++number) {
    const Steps steps(p, number);
    // Rows of x come with their q; a block that starts inside a strip wants those before as well.
    const int first_x = number == at.begin ? max(steps.q - p.window + 1, 0) : steps.q;
    const int end_x = min(steps.q + 1, p.x_h);
#pragma unroll 1
    for (int phase = 0; phase < p.phases; ++phase) {
      const uint32_t full = shared + ring.stage * 16;
      const int row_h = steps.row(p, at, phase);
      const bool has_y = unsigned(row_h) < unsigned(p.y_h);
      const int rows_x = phase == 0 ? max(end_x - first_x, 0) : 0;
      barrier_wait(full + 8, ring.parity ^ 1);
      barrier_expect(full, (has_y ? p.y_boxes.bytes() : 0) + rows_x * p.x_boxes.bytes());
      if (has_y)
        bring_boxes(p.y_boxes, kSize, &maps.y, stages + ring.stage * p.stage_bytes, full, channel_y,
                    steps.column(p, at), row_h, steps.n);
#pragma unroll 1
      for (int row = first_x; row < first_x + rows_x; ++row)
        bring_boxes(p.x_boxes, kSize, &maps.x,
                    slots + slot_before(p, slot, steps.q - row) * p.slot_bytes, full, channel_x,
                    steps.pixel, row, steps.n);
      ring.advance(p.stages);
    }
    slot = slot_after(p, slot);
  }
}

// Where a channel of a pixel lies.
__device__ __forceinline__ uint32_t place_in(const Boxes& boxes, int pixel, int channel_bytes) {
  const int slab = channel_bytes / boxes.pixel;
  const uint32_t at = pixel * boxes.pixel + channel_bytes - slab * boxes.pixel;
  return slab * boxes.pitch + (at ^ (at >> 3 & (boxes.pixel - 1) & 0x70));
}

// What a lane fetches from of a chunk, as it lies in a stage and a slot: chunks later it lies whole turns of the swizzle
// further. Of 16 bits it is a row of a matrix, of which the tensor core turns four or two. Of words it is a lane's first and
// second number of K, the other two being eight pixels further: neighbours where the stride is odd.
template <class T, int ROW>
struct Places {
  static constexpr bool kWords = sizeof(T) == 4;
  static constexpr Tile kTile = kTiles[ROW];
  uint32_t y[kTile.taps_w][kWords ? 2 : 1], x[kWords ? 2 : 1];
  uint32_t eight_y, eight_x;  // pixels

  __device__ __forceinline__ Places(const Params& p, const WarpPart& warp) {
    const int lane = threadIdx.x % 32;
    const int output =
        warp.group * p.columns + warp.output + (kWords ? lane / 4 * 2 : lane / 8 % 2 * 8);
    const int input = warp.group * p.rows + warp.input + (kWords ? lane / 4 : 0);
    const bool odd = p.stride_w % 2 != 0;
#pragma unroll
    for (int i = 0; i < (kWords ? 2 : 1); ++i) {
      const int of_words = odd ? lane % 4 * 2 + i : lane % 4 + i * 4;
      const int pixel_y = kWords ? of_words : lane % 8 + lane / 16 * 8;
      x[i] = place_in(p.x_boxes, kWords ? of_words : lane % 16, input * int(sizeof(T)));
#pragma unroll
      for (int tap = 0; tap < kTile.taps_w; ++tap)
        y[tap][i] = place_in(p.y_boxes, pixel_y * p.stride_w + (warp.tap + tap) * p.dilation_w,
                             output * int(sizeof(T)));
    }
    eight_y = 8 * p.stride_w * p.y_boxes.pixel, eight_x = 8 * p.x_boxes.pixel;
  }

  __device__ __forceinline__ void fetch(Operands<T, ROW>& to, uint32_t from) const {
#pragma unroll
    for (int tap = 0; tap < kTile.taps_w; ++tap) {
      if constexpr (kWords) {
#pragma unroll
        for (int slice = 0; slice < kSlices<T>; ++slice)
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            uint32_t pair[2];
            load_shared_8(from + y[tap][i] + slice * eight_y, pair);
            to.word[tap][slice][i * 2] = pair[0], to.word[tap][slice][i * 2 + 1] = pair[1];
          }
      } else {
        ldmatrix_x4_turned(to.word[tap][0], from + y[tap][0]);
      }
    }
  }
  __device__ __forceinline__ void fetch(uint32_t (&to)[2 * kSlices<T>], uint32_t from) const {
    if constexpr (kWords) {
#pragma unroll
      for (int i = 0; i < 4; ++i) to[i] = load_shared_4(from + x[i % 2] + i / 2 * eight_x);
    } else {
      ldmatrix_x2_turned(to[0], to[1], from + x[0]);
    }
  }
};

// A step: a row of dY and all rows of x that it meets. Words of TF32 came rounded.
template <class M, int ROW, class T = typename M::Element>
__device__ __forceinline__ void multiply_pixels(const Params& p, const Scope& at,
                                                const WarpPart& warp, const Places<T, ROW>& places,
                                                const Steps& steps, int phase, uint32_t stage,
                                                uint32_t slots, int slot, Sums<ROW>& sum) {
  constexpr Tile tile = kTiles[ROW];
  bool has[tile.taps_h], any = false;
  uint32_t from_x[tile.taps_h];
#pragma unroll
  for (int row = 0; row < tile.taps_h; ++row) {
    has[row] = meets(p, at, steps, phase, warp.row + row);
    any |= has[row];
    const int back = look_back(p, warp.row + row, has[row]);
    from_x[row] = slots + slot_before(p, slot, back) * p.slot_bytes;
  }
  if (!any) return;
#pragma unroll 1
  for (int chunk = warp.part; chunk < p.chunks; chunk += p.parts) {
    if (steps.pixel + chunk * kChunkPixels >= p.x_w) break;
    uint32_t x[tile.taps_h][2 * kSlices<T>];
#pragma unroll
    for (int row = 0; row < tile.taps_h; ++row)
      places.fetch(x[row], from_x[row] + chunk * 2 * places.eight_x);
    Operands<T, ROW> a, low_a;
    places.fetch(a, stage + chunk * 2 * places.eight_y);
    if constexpr (M::kSplit) {
#pragma unroll
      for (int tap = 0; tap < tile.taps_w; ++tap)
#pragma unroll
        for (int slice = 0; slice < kSlices<T>; ++slice)
          round_or_split<M>(a.word[tap][slice], low_a.word[tap][slice]);
    }
#pragma unroll
    for (int row = 0; row < tile.taps_h; ++row) {
      if (!has[row]) continue;
      uint32_t low_x[2 * kSlices<T>];
      if constexpr (M::kSplit) round_or_split<M>(x[row], low_x);
      multiply_row<M, ROW>(sum[row], a, low_a, x[row], low_x);
    }
  }
}

}  // namespace convt2d::cuda::dimity
