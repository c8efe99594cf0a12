// What is different in 16 bits, where two numbers are a word. Patches are turned by ldmatrix and stmatrix, eight pixels of
// eight channels at once, so a row of a patch is copied from a multiple of 16 bytes on, and what is before its first pixel
// goes to a dump. Numbers 2 i and 2 i + 1 of a half of K are channels i and i + 4: a lane's two are as far apart as four
// lanes' first ones, and both, or none, start in the middle of a word.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/loom/loom_scope.cuh"

namespace convt2d::cuda::loom {

__device__ __forceinline__ uint32_t low_halves(uint32_t a, uint32_t b) {
  return __byte_perm(a, b, 0x5410);
}
__device__ __forceinline__ uint32_t high_halves(uint32_t a, uint32_t b) {
  return __byte_perm(a, b, 0x7632);
}

// Weights of taps that are neighbours, of two channels that make a word of an operand, from `near` and `far` on. Three start
// in a word or, if `odd`, in the middle of it.
__device__ __forceinline__ void fetch_halves(uint32_t near, uint32_t far, bool,
                                             uint32_t (&word)[1]) {
  word[0] = low_halves(load_shared<unsigned short>(near), load_shared<unsigned short>(far));
}
__device__ __forceinline__ void fetch_halves(uint32_t near, uint32_t far, bool odd,
                                             uint32_t (&word)[3]) {
  // Two words have all three, wherever these start.
  const uint32_t outer = odd ? 0x7632 : 0x5410, inner = odd ? 0x5410 : 0x7632;
  uint32_t a[2], b[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    a[i] = load_shared_4(near + i * 4);
    b[i] = load_shared_4(far + i * 4);
  }
  word[0] = __byte_perm(a[0], b[0], outer);
  word[1] = __byte_perm(odd ? a[1] : a[0], odd ? b[1] : b[0], inner);
  word[2] = __byte_perm(a[1], b[1], outer);
}
__device__ __forceinline__ void fetch_halves(uint32_t near, uint32_t far, bool,
                                             uint32_t (&word)[4]) {
  uint32_t a[2], b[2];
  load_shared_8(near, a);
  load_shared_8(far, b);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    word[2 * i] = low_halves(a[i], b[i]);
    word[2 * i + 1] = high_halves(a[i], b[i]);
  }
}

// What a lane multiplies of TAPS taps: rows and rows eight further on, of both halves of K, each from words as above.
template <int TAPS>
__device__ __forceinline__ void fetch_operand(const GatherParams& p, uint32_t near,
                                              uint32_t (&word)[TAPS][4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint32_t from = near + half * p.far_number;
    const bool odd = TAPS == 3 && from & 2;
    if (TAPS == 3) from &= ~2u;
#pragma unroll
    for (int row = 0; row < 2; ++row, from += p.far_row) {
      uint32_t taps[TAPS];
      fetch_halves(from, from + p.number_pitch * 4, odd, taps);
#pragma unroll
      for (int tap = 0; tap < TAPS; ++tap) word[tap][2 * half + row] = taps[tap];
    }
  }
}

// The same of four taps, whose weights may come in segments: `place` is where they are in what a channel in has, `base` where
// that is, of a lane whose channels in are swizzled like that. Without a mask they lie as they do above.
__device__ __forceinline__ void fetch_operand(const GatherParams& p, uint32_t base, uint32_t place,
                                              uint32_t swizzle, uint32_t (&word)[4][4]) {
#pragma unroll
  for (int row = 0; row < 2; ++row, place += p.far_row) {
    const uint32_t near = base + (place >> kSegmentShift) * p.segment_bytes +
                          ((place & p.segment_mask) ^ swizzle),
                   far = (near ^ p.flip) + p.far_channel;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t taps[4];
      fetch_halves(near + half * p.far_number, far + half * p.far_number, false, taps);
#pragma unroll
      for (int tap = 0; tap < 4; ++tap) word[tap][2 * half + row] = taps[tap];
    }
  }
}

// A pixel's place in planes that follow each other.
__device__ __forceinline__ int pixel_of_line(const GatherParams& p, int plane, int y, int x) {
  return (plane * p.h.source_extent + y) * p.w.source_extent + x;
}

// What is turned, pixel by pixel of each eight: where the eight is in a copied channel, and where the pixel belongs in a
// half, both in units of 16 bytes. Where rows come one by one also its row and its column, and these for each plane. All
// that for each place in 16 bytes where a tile may start.
__device__ __forceinline__ void build_octets(const GatherParams& p, const Scope& at,
                                             uint32_t shared) {
  const int dump = p.steps_h * p.steps_w * p.plane_units;
  const TileOrigin first = {0, 0, 0};
  for (int i = threadIdx.x; i < p.tables * p.table_items; i += kThreads) {
    const int table = i / p.table_items, in_table = i - table * p.table_items,
              plane = in_table / p.items, octet = (in_table - plane * p.items) / kEight,
              line = octet / p.octets, column = octet - line * p.octets, n = line / p.load_h,
              y = line - n * p.load_h;
    int pixel = first_column(p, first), from = n * p.slices * slice_of(2) * (p.channel_words / 4) +
                                               y * (p.copied_w / kEight) + column;
    if (p.lines) {
      pixel = pixel_of_line(p, plane, first_row(p, at, first) + y, pixel);
      from = (y * p.tile_n + n) * (p.line_bytes / 16) + column;
    }
    const int lead = (pixel + (table << p.lead_shift)) & (kEight - 1);
    const int x = column * kEight + i % kEight - lead;
    const int to = x >= 0 && x < p.load_w ? unit_of_pixel(p, n, y, x) : dump + i % kEight;
    const uint32_t item = uint32_t(to) << 16 | uint32_t(from);
    if (p.lines) {
      store_shared_4(shared + p.items_at + i * 8, item);
      store_shared_4(shared + p.items_at + i * 8 + 4, uint32_t(y) << 16 | uint32_t(x & 0xffff));
    } else {
      store_shared_4(shared + p.items_at + i * 4, item);
    }
  }
}

// What is beside the source, which a row that came alone has from its neighbours, becomes zeros: this lane's pixel, which
// others of its warp may have stored.
__device__ __forceinline__ void clear_outside(bool outside, uint32_t to) {
  __syncwarp();
  if (outside) store_shared_16(to, {0, 0, 0, 0});
}

// Four eights of pixels of a slice at a time, twice, since what is loaded is some 30 cycles on its way. A lane addresses one
// channel of an eight, and one of its pixels. `items`: the tile's table. `row` and `column`: of the source, where the patch
// starts.
template <bool LINES, bool EDGES>
__device__ __forceinline__ void turn_octets(const GatherParams& p, uint32_t items, int row,
                                            int column, uint32_t from, uint32_t to) {
  const int lane = threadIdx.x % 32, turner = threadIdx.x / 32 - kConsumers / 32 - 1;
  const uint32_t channel = p.channel_words * 4;
  from += (lane % 8 / 2 + lane % 2 * 4) * channel;
  for (int first = turner * 32; first < p.items; first += 2 * kTurners * 32) {
    const bool both = first + kTurners * 32 < p.items;
    uint32_t mine[2], there[2][2];
    bool outside[2][2] = {};
#pragma unroll
    for (int two = 0; two < 2; ++two) {
      // Lanes beyond the last eight do the first one again.
      int number = first + two * kTurners * 32 + lane;
      number = number < p.items ? number : lane % kEight;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t item[2];
        if constexpr (LINES) {
          load_shared_8(items + (number + half * p.second_items) * 8, item);
          const int y = row + int(item[1] >> 16), x = column + int(item[1] & 0xffff);
          outside[two][half] = uint32_t(y) >= uint32_t(p.h.source_extent) ||
                               uint32_t(x) >= uint32_t(p.w.source_extent);
        } else {
          item[0] = load_shared_4(items + number * 4);
        }
        mine[two] = from + (item[0] & 0xffff) * 16;
        there[two][half] = to + (item[0] >> 16) * 16 + half * p.half_bytes;
      }
    }
    for (int slice = 0; slice < p.slices; ++slice) {
      uint32_t word[2][2][4];
#pragma unroll
      for (int two = 0; two < 2; ++two)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          load_tiles(mine[two] + half * p.second_bytes, word[two][half]);
#pragma unroll
      for (int two = 0; two < 2; ++two) {
        if (two == 0 || both)
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            store_turned(there[two][half], word[two][half]);
            if constexpr (EDGES) clear_outside(outside[two][half], there[two][half]);
          }
        mine[two] += p.next_bytes;
#pragma unroll
        for (int half = 0; half < 2; ++half) there[two][half] += 2 * p.half_bytes;
      }
    }
  }
}
__device__ __forceinline__ void turn_octets(const GatherParams& p, const Scope& at, uint32_t shared,
                                            TileOrigin origin, uint32_t from, uint32_t to) {
  const int row = first_row(p, at, origin), column = first_column(p, origin);
  const int start = origin.w * p.steps_w + (p.lines ? origin.h * p.steps_h * p.w.source_extent : 0),
            table = (start & (kEight - 1)) >> p.lead_shift;
  const uint32_t items = shared + p.items_at + table * p.table_items * (p.lines ? 8 : 4);
  const bool inside = row >= 0 && row + p.load_h <= p.h.source_extent && column >= 0 &&
                      column + p.load_w <= p.w.source_extent;
  if (!p.lines)
    turn_octets<false, false>(p, items, row, column, from, to);
  else if (inside)
    turn_octets<true, false>(p, items, row, column, from, to);
  else
    turn_octets<true, true>(p, items, row, column, from, to);
}

}  // namespace convt2d::cuda::loom
