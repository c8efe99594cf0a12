// How a chunk of K comes to shared memory.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/digits.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/strand/strand_config.h"

namespace convt2d::cuda::strand {

// What a block works on.
struct Scope {
  int group, row, position;  // the first of the tile: of the group's rows, of all positions
  int begin, end;            // chunks
};
__device__ __forceinline__ Scope scope_of(const Params& p, Tile tile) {
  Digits number{int(blockIdx.x)};
  const int rank = blockIdx.y;
  Scope at;
  at.row = number.next(p.row_tiles) * tile.rows;
  at.position = number.next(p.position_tiles) * tile.positions;
  at.group = number.rest;
  at.begin = p.chunks * rank / p.ranks;
  at.end = p.chunks * (rank + 1) / p.ranks;
  return at;
}

constexpr int kNowhere = -(1 << 30);  // a row of dY that does not exist, whatever is added

// Where a position's window of dY starts: what its first number is, and of which row and column.
struct Place {
  int number, row, column;
};
__device__ __forceinline__ Place place_of(const Params& p, const Scope& at, int position) {
  if (position >= p.positions) return {0, kNowhere, 0};
  const int image = p.by_plane.quotient(position);
  const int pixel = position - image * static_cast<int>(p.by_plane.divisor);
  const int h = p.by_width.quotient(pixel), w = pixel - h * static_cast<int>(p.by_width.divisor);
  const int row = h * p.stride_h - p.pad_h, column = w * p.stride_w - p.pad_w;
  return {image * p.y_image + at.group * p.y_group + row * p.y_row + column * p.y_pixel, row,
          column * p.unit};
}

// A place along K, as what is added to those.
__device__ __forceinline__ Place along(const Params& p, int k) {
  const int outside = p.by_run.quotient(k), in_run = k - outside * p.run;
  const int outer = p.by_middle.quotient(outside), middle = outside - outer * p.middle;
  return {outer * p.outer_step + middle * p.middle_step + in_run,
          k < p.reduce ? outer * p.outer_row + middle * p.middle_row : kNowhere,
          middle * p.middle_column + in_run * p.run_column};
}

__device__ __forceinline__ bool exists(const Params& p, const Place& position, const Place& k) {
  return unsigned(position.row + k.row) < unsigned(p.y_h) &&
         unsigned(position.column + k.column) < unsigned(p.limit);
}

// The places of the block's positions, for all threads.
template <int ROW>
__device__ __forceinline__ void build_places(const Params& p, const Scope& at, uint32_t places) {
  static_assert(kTiles[ROW].positions <= kThreads);
  if (const int i = threadIdx.x; i < kTiles[ROW].positions) {
    const Place place = place_of(p, at, at.position + i);
    store_shared_16(places + i * kPlaceBytes,
                    {uint32_t(place.number), uint32_t(place.row), uint32_t(place.column), 0});
  }
}

// dY of a chunk, BYTES at once. A thread has one place along K, of some positions; 2^along threads side by side have
// neighbouring places, the next ones the next positions, until these are as many as come at once.
template <class T, int BYTES, int ROW>
__device__ __forceinline__ void bring_source(const Params& p, uint32_t places, int chunk,
                                             uint32_t to) {
  constexpr Tile tile = kTiles[ROW];
  constexpr int kPieces = tile.chunk / BYTES, kTogether = kThreads / kPieces;
  static_assert(tile.positions % kTogether == 0);
  const int thread = threadIdx.x, beside = thread & ((1 << p.along) - 1);
  const int rest = thread >> p.along, first = rest % kTogether;
  const int piece = rest / kTogether << p.along | beside;
  const Place k = along(p, (chunk * tile.chunk + piece * BYTES) / int(sizeof(T)));
  const T* const source = static_cast<const T*>(p.source);
  to += first * pitch(tile) + piece * BYTES;
  places += first * kPlaceBytes;
#pragma unroll 4
  for (int i = 0; i < tile.positions / kTogether; ++i) {
    uint32_t word[4];
    load_shared_16(places + i * kTogether * kPlaceBytes, word);
    const Place position = {int(word[0]), int(word[1]), int(word[2])};
    const bool there = exists(p, position, k);
    copy_async<BYTES>(to + i * kTogether * pitch(tile),
                      there ? source + (position.number + k.number) : source, there);
  }
}

// Weights a thread copies of a chunk: a place along K, of some rows.
template <class T, int ROW>
struct Weights {
  const T* from;  // of the first of the rows
  int k, rows;    // rows that exist from there on
  uint32_t place;

  __device__ __forceinline__ Weights(const Params& p, const Scope& at) {
    const int pieces = kTiles[ROW].chunk / p.weight_piece, row = threadIdx.x / pieces;
    const int offset = threadIdx.x % pieces * p.weight_piece;
    k = (at.begin * kTiles[ROW].chunk + offset) / int(sizeof(T));
    rows = p.rows - at.row - row;
    from = static_cast<const T*>(p.weight) +
           (int64_t{at.group * p.rows + at.row + row} * p.reduce + k);
    place = row * pitch(kTiles[ROW]) + offset;
  }
};

// Those of the next chunk, BYTES at once.
template <class T, int BYTES, int ROW>
__device__ __forceinline__ void bring_weights(const Params& p, Weights<T, ROW>& weights,
                                              uint32_t stage) {
  constexpr Tile tile = kTiles[ROW];
  constexpr int kPieces = tile.chunk / BYTES, kTogether = kThreads / kPieces;
  static_assert(tile.rows % kTogether == 0);
  const int rows = weights.k < p.reduce ? weights.rows : 0;
  const T* from = weights.from;
#pragma unroll 4
  for (int row = 0; row < tile.rows; row += kTogether) {
    const bool there = row < rows;
    copy_async<BYTES>(stage + weights.place + row * pitch(tile), there ? from : p.weight, there);
    from += int64_t{kTogether} * p.reduce;
  }
  weights.from += tile.chunk / int(sizeof(T));
  weights.k += tile.chunk / int(sizeof(T));
}

template <class T, int ROW>
__device__ __forceinline__ void bring(const Params& p, uint32_t places, Weights<T, ROW>& weights,
                                      int chunk, uint32_t stage) {
  if (p.weight_piece == 16) {
    bring_weights<T, 16, ROW>(p, weights, stage);
  } else if (p.weight_piece == 8) {
    bring_weights<T, 8, ROW>(p, weights, stage);
  } else {
    bring_weights<T, 4, ROW>(p, weights, stage);
  }
  stage += kTiles[ROW].rows * pitch(kTiles[ROW]);
  if (p.source_piece == 16) {
    bring_source<T, 16, ROW>(p, places, chunk, stage);
  } else if (p.source_piece == 8) {
    bring_source<T, 8, ROW>(p, places, chunk, stage);
  } else {
    bring_source<T, 4, ROW>(p, places, chunk, stage);
  }
}

}  // namespace convt2d::cuda::strand
