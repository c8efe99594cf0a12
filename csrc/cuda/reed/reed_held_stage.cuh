// What the kernels of held tiles (reed_held.cuh, reed_wide.cuh) have in common: where slots are, their pixels, weights, rows.
#pragma once

#include "cuda/reed/reed_held.h"
#include "cuda/reed/reed_store.cuh"

namespace convt2d::cuda::reed {

// The first slot of a block, among those of all images.
__device__ __forceinline__ int first_slot(const Held& h, const Scope& at) {
  const Params& p = h.base;
  const int image = p.by_image.quotient(at.position);
  const int in_image = at.position - image * int(p.by_image.divisor);
  const int row = p.by_width.quotient(in_image);
  return (image * h.grid_h + row) * h.grid_w + in_image - row * int(p.by_width.divisor);
}

// Where the slots of a block are in x, -1 of those beside it; by so many threads.
__device__ __forceinline__ void write_sources(const Held& h, const Scope& at, int first,
                                              uint32_t sources, int threads = kHeldThreads) {
  const Params& p = h.base;
  const int grid = h.by_grid.divisor, above_h = p.taps_h - 1, above_w = p.taps_w - 1;
#pragma unroll 1
  for (int slot = threadIdx.x; slot < h.slots; slot += threads) {
    const int number = first + slot, image = h.by_grid.quotient(number);
    const int in_image = number - image * grid, row = h.by_grid_w.quotient(in_image);
    const int x_h = row - above_h + p.first_h,
              x_w = in_image - row * h.grid_w - above_w + p.first_w;
    const bool there =
        image < h.images && unsigned(x_h) < unsigned(p.x_h) && unsigned(x_w) < unsigned(p.x_w);
    store_shared_4(sources + slot * 4,
                   there ? uint32_t(at.group) * p.x_group + uint32_t(image) * p.x_image +
                               uint32_t(x_h) * p.x_row + uint32_t(x_w) * p.x_pixel
                         : ~0u);
  }
}

// Runs of 16 bytes of a row of x, as many channels as they have numbers: those of a slot, turned. Neighbouring threads have
// the same channels of two runs, which are a sector, and the next ones those of the channels behind. place(slot, unit) is where
// 16 bytes of channels go.
template <class M, class Where>
__device__ __forceinline__ void turn_pixels(const Held& h, const Scope& at, int first,
                                            uint32_t sources, int threads, Where&& place) {
  using T = typename M::Element;
  const Params& p = h.base;
  constexpr int kNumbers = 16 / int(sizeof(T)), kAtOnce = 8 / kNumbers;
  const T* const x = static_cast<const T*>(p.x) + int64_t{at.group} * p.x_group;
  const int first_row = h.by_grid_w.quotient(first);
  const int rows = int(h.by_grid_w.quotient(first + h.slots - 1)) - first_row + 1;
  const int pairs = h.by_pairs.divisor, count = rows * pairs * h.units * 2;
#pragma unroll 1
  for (int item = threadIdx.x; item < count; item += kAtOnce * threads) {
    uint32_t word[kAtOnce][kNumbers][4];
    int slot[kAtOnce], column[kAtOnce], unit[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int here = item + i * threads;
      const int run = h.by_units.quotient(here / 2), row = h.by_pairs.quotient(run);
      unit[i] = here / 2 - run * h.units;
      const int x_w = ((run - row * pairs) * 2 + here % 2) * kNumbers;
      const int of_all = first_row + row, image = h.by_grid.quotient(of_all * h.grid_w);
      const int x_h = of_all - image * h.grid_h - (p.taps_h - 1) + p.first_h;
      const bool there =
          here < count && x_w < p.x_w && image < h.images && unsigned(x_h) < unsigned(p.x_h);
      column[i] = there ? x_w + p.taps_w - 1 - p.first_w : -kNumbers;
      slot[i] = of_all * h.grid_w - first + column[i];
      const T* from = x;
      if (there)
        from += image * p.x_image + x_h * p.x_row + x_w + int64_t{unit[i] * kNumbers} * p.x_channel;
      const int left = there ? p.terms - unit[i] * kNumbers : 0;
#pragma unroll
      for (int c = 0; c < kNumbers; ++c) {
        load_16_if(from, c, left, word[i][c]);
        from += p.x_channel;
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
#pragma unroll
      for (int s = 0; s < kNumbers; ++s) {
        uint32_t turned[4];
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          if constexpr (sizeof(T) == 4) {
            turned[c] = M::round(word[i][c][s]);
          } else {
            const uint32_t a = word[i][2 * c][s / 2], b = word[i][2 * c + 1][s / 2];
            turned[c] = s % 2 ? a >> 16 | (b & 0xffff0000u) : (a & 0xffffu) | b << 16;
          }
        }
        if (unsigned(slot[i] + s) < unsigned(h.slots) &&
            unsigned(column[i] + s) < unsigned(h.grid_w))
          store_shared_16(place(slot[i] + s, unit[i]), turned);
      }
  }
#pragma unroll 1
  for (int slot = threadIdx.x / 32; slot < h.slots; slot += threads / 32)
    if (load_shared_4(sources + slot * 4) == ~0u)
#pragma unroll 1
      for (int unit = threadIdx.x % 32; unit < h.units; unit += 32)
        store_shared_16(place(slot, unit), {0, 0, 0, 0});
}

// All channels of all slots, a few units of 16 bytes of a thread at once: where channels are neighbours as whole units,
// else lanes have neighbouring slots.
template <class M, class Where>
__device__ __forceinline__ void hold_pixels(const Held& h, uint32_t sources, int threads,
                                            Where&& where) {
  using T = typename M::Element;
  const Params& p = h.base;
  constexpr int kNumbers = 16 / int(sizeof(T));
  const T* const x = static_cast<const T*>(p.x);
  if (p.way == kVectors) {
    constexpr int kAtOnce = 6;
    const int count = h.slots * h.units;
#pragma unroll 1
    for (int item = threadIdx.x; item < count; item += kAtOnce * threads) {
      uint32_t word[kAtOnce][4], place[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int here = min(item + i * threads, count - 1);
        const int slot = h.by_units.quotient(here), unit = here - slot * h.units;
        const int source = load_shared_4(sources + slot * 4);
        place[i] = where(slot, unit);
        load_16_if(x + max(source, 0) + unit * kNumbers, unit * kNumbers, source < 0 ? 0 : p.terms,
                   word[i]);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
#pragma unroll
        for (int v = 0; v < 4; ++v) word[i][v] = M::round(word[i][v]);
        if (item + i * threads < count) store_shared_16(place[i], word[i]);
      }
    }
    return;
  }
  constexpr int kAtOnce = sizeof(T) == 4 ? 6 : 4;
  const int warps = threads / 32;
  const int lane = threadIdx.x % 32, count = (h.slots + 31) / 32 * h.units;
#pragma unroll 1
  for (int item = threadIdx.x / 32; item < count; item += kAtOnce * warps) {
    uint32_t number[kAtOnce][kNumbers], place[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int here = min(item + i * warps, count - 1);
      const int part = h.by_units.quotient(here), unit = here - part * h.units;
      const int slot = part * 32 + lane;
      const int source = slot < h.slots ? int(load_shared_4(sources + slot * 4)) : -1;
      place[i] = item + i * warps < count && slot < h.slots ? where(slot, unit) : ~0u;
      const T* from = x + max(source, 0) + int64_t{unit * kNumbers} * p.x_channel;
      const int left = source < 0 ? 0 : p.terms - unit * kNumbers;
#pragma unroll
      for (int v = 0; v < kNumbers; ++v) {
        number[i][v] = load_if<sizeof(T)>(from, v, left);
        from += p.x_channel;
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      uint32_t word[4];
#pragma unroll
      for (int v = 0; v < 4; ++v)
        word[v] = sizeof(T) == 4
                      ? M::round(number[i][v])
                      : number[i][v * 2 % kNumbers] | number[i][(v * 2 + 1) % kNumbers] << 16;
      if (place[i] != ~0u) store_shared_16(place[i], word);
    }
  }
}

template <class M, class Where>
__device__ __forceinline__ void bring_pixels(const Held& h, const Scope& at, int first,
                                             uint32_t sources, Where&& place,
                                             int threads = kHeldThreads) {
  if (h.turned) {
    turn_pixels<M>(h, at, first, sources, threads, place);
  } else {
    hold_pixels<M>(h, sources, threads, place);
  }
}

// As bring_weights(), of rows that come 16 bytes at once, by THREADS threads.
template <class T, int THREADS>
__device__ __forceinline__ void bring_held(const Params& p, const WeightRow& row, const Walk& walk,
                                           uint32_t to) {
  constexpr Tile tile = kTiles[kHeldTile];
  constexpr int kPitch = w_pitch(tile, sizeof(T)), kUnits = tile.rows / (16 / int(sizeof(T)));
  constexpr int kTurns = chunk_of(sizeof(T)) * kUnits / THREADS;
  const int thread = threadIdx.x % THREADS >> p.paired, second = threadIdx.x & p.paired;
  const int step_h = p.joined ? 0 : walk.h, step_w = p.joined ? walk.h : walk.w + second;
  const bool exists =
      row.exists && row.h + step_h * p.runs < p.run_h && row.w + step_w * p.run < p.run_w;
  const int k = thread / kUnits, at_once = THREADS / kUnits >> p.paired;
  const T* const w = static_cast<const T*>(p.w);
  const T* from = w + row.offset + step_h * p.runs * p.run_w + step_w * p.run +
                  int64_t{walk.channel + k} * p.w_channel;
  to += (second * (chunk_of(sizeof(T)) / 2) + k) * kPitch + thread % kUnits * 16;
  const int left = exists ? p.terms - walk.channel - k : 0;
#pragma unroll
  for (int i = 0; i < kTurns; ++i) {
    copy_async<16>(to + i * at_once * kPitch, i * at_once < left ? from : w, i * at_once < left);
    from += int64_t{at_once} * p.w_channel;
  }
}

// The phases of a row and where it is in y from a position's place; far outside where there is none.
struct HeldRow {
  int h, w, y;
  __device__ __forceinline__ HeldRow(const Params& p, const Scope& at, int row) {
    const RowOf of(p, at.row + row);
    h = has_row(p, at, row) ? of.h : int(0xc0000000), w = of.w, y = of.y;
  }
  __device__ __forceinline__ bool there(const Params& p, const Place& place) const {
    return unsigned(place.h * p.stride_h - p.pad_h + h) < unsigned(p.y_h) &&
           unsigned(place.w * p.unit - p.pad_w + w) < unsigned(p.y_w);
  }
};

// The bias of row `row` of a tile that begins at `first`.
template <class T>
__device__ __forceinline__ float bias_of(const Params& p, int group, int first, int row) {
  if (!p.bias || row >= p.used || first + row >= p.rows) return 0.f;
  const RowOf of(p, first + row);
  return load(static_cast<const T*>(p.bias) + group * p.group_out + of.output(p));
}

}  // namespace convt2d::cuda::reed
