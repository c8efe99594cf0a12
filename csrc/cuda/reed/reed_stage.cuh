// What a chunk of K brings to shared memory, and where a block's positions and rows are.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/memory.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/reed/reed_config.h"

namespace convt2d::cuda::reed {

// What a block works on.
struct Scope {
  int group, row, position;  // the first of them
};
// Neighbouring blocks read the same weights, at about the same time.
__device__ __forceinline__ Scope scope_of(const Params& p, Tile tile) {
  Scope at;
  int rest = blockIdx.x / p.position_blocks;
  at.position = (blockIdx.x - rest * p.position_blocks) * tile.columns;
  at.group = rest / p.row_blocks;
  at.row = (rest - at.group * p.row_blocks) * p.used;
  return at;
}

// The chunks of K in their order: all j of some channels first.
struct Walk {
  int channel = 0, h = 0, w = 0;
  __device__ __forceinline__ void advance(const Params& p, int chunk) {
    w += 1 + p.paired;
    if (w < p.taps_w) return;
    w = 0;
    if (++h < p.taps_h) return;
    h = 0;
    channel += chunk;
  }
};

// Of a position: where it is in x and y, of channel 0 and phase 0; q of both axes, those beyond the last far outside.
struct Place {
  int x, y, h, w;
};
constexpr uint32_t kNowhere = 0x80008000;
__device__ __forceinline__ Place place_at(uint32_t places, int n) {
  uint32_t word[4];
  load_shared_16(places + n * 16, word);
  return {int(word[0]), int(word[1]), int(word[2]) >> 16, int(short(word[2] & 0xffff))};
}
__device__ __forceinline__ void write_places(const Params& p, const Scope& at, Tile tile,
                                             uint32_t places) {
  for (int n = threadIdx.x; n < tile.columns; n += threads_of(tile)) {
    const int number = at.position + n;
    const int image = p.by_image.quotient(number);
    const int in_image = number - image * int(p.by_image.divisor);
    const int row = p.by_width.quotient(in_image);
    const int h = row + p.first_h, w = in_image - row * int(p.by_width.divisor) + p.first_w;
    const uint32_t x = uint32_t(at.group) * p.x_group + uint32_t(image) * p.x_image +
                       uint32_t(h) * p.x_row + uint32_t(w) * p.x_pixel;
    const uint32_t y = uint32_t(at.group) * p.y_group + uint32_t(image) * p.y_image +
                       uint32_t(h * p.stride_h - p.pad_h) * p.y_row + uint32_t(w) * p.unit -
                       p.pad_w;
    const uint32_t q =
        unsigned(number) < unsigned(p.positions) ? uint32_t(h) << 16 | (w & 0xffff) : kNowhere;
    store_shared_16(places + n * 16, {x, y, q, 0});
  }
}

// Of a row: its channel, phases, and where it is in y from a position's place.
struct RowOf {
  int channel, h, w, y;
  __device__ __forceinline__ RowOf(const Params& p, int row) {
    const int above = p.by_unit.quotient(row);
    channel = p.by_stride.quotient(above);
    h = above - channel * p.stride_h;
    w = row - above * p.unit;
    y = channel * p.y_plane + h * p.y_row + w;
  }
  __device__ __forceinline__ int output(const Params& p) const {
    return p.inner ? w % p.inner : p.flat ? w / p.flat : channel;
  }
};
__device__ __forceinline__ bool has_row(const Params& p, const Scope& at, int row) {
  return row < p.used && at.row + row < p.rows;
}

// The weights that a thread copies: the same rows of every chunk.
struct WeightRow {
  int offset, h, w;
  bool exists;
  __device__ __forceinline__ WeightRow(const Params& p, const Scope& at, int rows, int numbers) {
    const int row = (threadIdx.x >> p.paired) % (rows / numbers) * numbers;
    exists = has_row(p, at, row);
    const int above = p.by_run.quotient(at.row + row), channel = p.by_runs.quotient(above);
    h = above - channel * p.runs;
    w = at.row + row - above * p.run;
    offset = at.group * p.w_group + channel * p.run_taps + h * p.run_w + w;
  }
};
template <class T, int BYTES, int ROW>
__device__ __forceinline__ void bring_weights(const Params& p, const WeightRow& row,
                                              const Walk& walk, uint32_t to) {
  constexpr Tile tile = kTiles[ROW];
  constexpr int kPitch = w_pitch(tile, sizeof(T)), kUnits = tile.rows / (BYTES / int(sizeof(T)));
  constexpr int kNumbers = chunk_of(sizeof(T));
  constexpr int kAtOnce = threads_of(tile) / kUnits;  // numbers of K
  static_assert(kNumbers % kAtOnce == 0);
  const int step_h = p.joined ? 0 : walk.h, step_w = p.joined ? walk.h : walk.w;
  const bool exists =
      row.exists && row.h + step_h * p.runs < p.run_h && row.w + step_w * p.run < p.run_w;
  const int k = threadIdx.x / kUnits;
  const T* const w = static_cast<const T*>(p.w);
  const T* from = w + row.offset + step_h * p.runs * p.run_w + step_w * p.run +
                  int64_t{walk.channel + k} * p.w_channel;
  to += k * kPitch + threadIdx.x % kUnits * BYTES;
  const int left = exists ? p.terms - walk.channel - k : 0;
#pragma unroll
  for (int i = 0; i < kNumbers; i += kAtOnce) {
    copy_async<BYTES>(to + i * kPitch, i < left ? from : w, i < left);
    from += int64_t{kAtOnce} * p.w_channel;
  }
}

// Whether x has what a position reads of this j.
__device__ __forceinline__ bool reads(const Params& p, const Place& place, const Walk& walk) {
  return unsigned(place.h - walk.h) < unsigned(p.x_h) &&
         unsigned(place.w - walk.w) < unsigned(p.x_w);
}
template <class T>
__device__ __forceinline__ const T* source_of(const Params& p, const Place& place,
                                              const Walk& walk) {
  return static_cast<const T*>(p.x) + (place.x - walk.h * p.x_row - walk.w * p.x_pixel) +
         int64_t{walk.channel} * p.x_channel;
}

// x, 16 bytes of channels of a position at once: neighbouring lanes have those of a chunk.
template <class T, int ROW>
__device__ __forceinline__ void bring_vectors(const Params& p, uint32_t places, const Walk& walk,
                                              uint32_t to) {
  constexpr int kColumns = kTiles[ROW].columns, kLanes = kChunkBytes / 16;
  constexpr int kAtOnce = threads_of(kTiles[ROW]) / kLanes, kPitch = kXPitch;
  const int lane = threadIdx.x % kLanes, first = threadIdx.x / kLanes;
  const int channel = lane * (16 / int(sizeof(T)));
  to += first * kPitch + lane * 16;
#pragma unroll
  for (int i = 0; i < kColumns; i += kAtOnce) {
    if (kColumns % kAtOnce != 0 && first + i >= kColumns) continue;
    const Place place = place_at(places, first + i);
    const bool there = walk.channel + channel < p.terms && reads(p, place, walk);
    copy_async<16>(to + i * kPitch,
                   there ? source_of<T>(p, place, walk) + channel : static_cast<const T*>(p.x),
                   there);
  }
}

// Words: eight neighbouring positions and four channels of a warp at once.
template <int ROW>
__device__ __forceinline__ void bring_words(const Params& p, uint32_t places, const Walk& walk,
                                            uint32_t to) {
  constexpr int kColumns = kTiles[ROW].columns, kAtOnce = threads_of(kTiles[ROW]) / 4;
  const int lane = threadIdx.x % 32, k = lane / 8;
#pragma unroll
  for (int i = 0; i < kColumns; i += kAtOnce) {
    const int n = i + threadIdx.x / 32 * 8 + lane % 8;
    if (kColumns % kAtOnce != 0 && n >= kColumns) continue;
    const Place place = place_at(places, n);
    const int left = reads(p, place, walk) ? p.terms - walk.channel - k : 0;
    const float* from = source_of<float>(p, place, walk) + int64_t{k} * p.x_channel;
    const uint32_t here = to + n * kXPitch + k * 4;
#pragma unroll
    for (int j = 0; j < kChunkBytes / 4; j += 4) {
      copy_async<4>(here + j * 4, j < left ? from : static_cast<const float*>(p.x), j < left);
      from += 4 * p.x_channel;
    }
  }
}

// Numbers of 16 bits, a part of a chunk at once: a thread has eight channels of a position, as the lanes beside it of the
// next ones.
template <int ROW>
struct Numbers {
  static constexpr Tile kTile = kTiles[ROW];
  static constexpr int kThreads = threads_of(kTile);
  static constexpr int kPart = kChunkBytes / 2 / parts_of(kTile);
  static constexpr int kItems = kTile.columns * (kPart / 8);
  static constexpr int kCount = (kItems + kThreads - 1) / kThreads;
  uint32_t number[kCount][8];

  template <class Visit>
  static __device__ __forceinline__ void each(Visit&& visit) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int item = i * kThreads + threadIdx.x;
      if (kItems % kThreads == 0 || item < kItems)
        visit(i, item % kTile.columns, item / kTile.columns * 8);
    }
  }
  __device__ __forceinline__ void load(const Params& p, uint32_t places, const Walk& walk,
                                       int part) {
    each([&](int i, int n, int k) {
      const Place place = place_at(places, n);
      k += part * kPart;
      const int left = reads(p, place, walk) ? p.terms - walk.channel - k : 0;
      const unsigned short* from =
          source_of<unsigned short>(p, place, walk) + int64_t{k} * p.x_channel;
#pragma unroll
      for (int v = 0; v < 8; ++v) {
        number[i][v] = load_if<2>(from, v, left);
        from += p.x_channel;
      }
    });
  }
  __device__ __forceinline__ void put(uint32_t to, int part) const {
    each([&](int i, int n, int k) {
      store_shared_16(to + n * kXPitch + (part * kPart + k) * 2,
                      {number[i][0] | number[i][1] << 16, number[i][2] | number[i][3] << 16,
                       number[i][4] | number[i][5] << 16, number[i][6] | number[i][7] << 16});
    });
  }
};

}  // namespace convt2d::cuda::reed
