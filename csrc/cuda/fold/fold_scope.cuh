// Where a thread of the fold kernel is: channels, items, tiles of them, places of products and weights.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/fold/fold_config.h"
#include "cuda/gather_device.cuh"

namespace convt2d::cuda::fold {

template <class T>
constexpr bool is_word = sizeof(T) == 4;

// The channels of a block, and which of the blocks with the same channels it is.
struct Scope {
  int group, column_block, walker;
};
__device__ __forceinline__ Scope scope_of(const Params& p) {
  const int rest = blockIdx.x / p.column_blocks;
  return {rest % p.groups, static_cast<int>(blockIdx.x) % p.column_blocks, rest / p.groups};
}
// The first output channel of one of its blocks of rows.
__device__ __forceinline__ int first_channel(const Params& p, Tile tile, const Scope& at,
                                             int row_block) {
  return (at.column_block * row_blocks(tile) + row_block) * p.row_channels;
}

struct Item {
  int n, first_position;   // image; pair of columns of y that the strip starts with
  int first_row, end_row;  // of x
  int first_out, end_out;  // rows of y
};
__device__ __forceinline__ int first_output(const Params& p, int row) {
  return min(max(row * kStride - p.pad_h, 0), p.y_h);
}
__device__ __forceinline__ Item item_of(const Params& p, int index) {
  const int segment = index % p.segments, rest = index / p.segments;
  const int begin = segment * p.segment_rows, end = min(begin + p.segment_rows, p.x_h);
  return {rest / p.strips * p.tile_images,
          rest % p.strips * p.strip_positions,
          max(begin - p.reach_rows, 0),
          end,
          begin == 0 ? 0 : first_output(p, begin),
          end == p.x_h ? p.y_h : first_output(p, end)};
}

// A tile of an item: some rows of x, and the rows of y that they reach.
struct Moment {
  int rows;  // of x
  int first_out,
      touched;  // rows of y from the first that is not done to beyond the last that gets anything
  int done;     // below this they are complete
  int carried;  // below this they have sums from the tile before
  int from_row, to_row;  // of y: that rows of this tile, and of the next, reach first
};
__device__ __forceinline__ Moment moment_of(const Params& p, const Item& item, int row) {
  Moment at;
  at.rows = min(p.tile_rows, item.end_row - row);
  const int end = row + at.rows, reach = p.kernel - p.pad_h;
  const bool first = row == item.first_row, last = end == item.end_row;
  at.from_row = row * kStride - p.pad_h;
  at.to_row = end * kStride - p.pad_h;
  at.first_out = first ? item.first_out : max(item.first_out, at.from_row);
  at.done = last ? item.end_out : min(item.end_out, at.to_row);
  at.touched = last ? item.end_out : max(at.done, min(item.end_out, (end - 1) * kStride + reach));
  at.carried = first ? INT32_MIN : (row - 1) * kStride + reach;
  return at;
}

// Byte of a row of products that belongs to a pixel of the tile; where there is none, one that nobody reads.
__device__ __forceinline__ uint32_t product_byte(const Params& p, Tile tile, const Item& item,
                                                 int pixel) {
  int column, place;
  bool wanted;
  if (p.strips > 1) {
    column = item.first_position + p.low_w + pixel;
    place = pixel;
    wanted = column >= 0 && column < p.x_w && pixel < p.row_pitch;
  } else {
    const int image_pixels = p.image_lines * line_numbers(p.number_bytes);
    const int image = p.tile_images > 1 ? pixel / image_pixels : 0;
    const int inside = pixel - image * image_pixels, row = inside / p.x_w;
    column = inside - row * p.x_w - p.low_w;
    place = (image * p.x_h + row) * p.row_pitch + column;
    wanted = image < p.tile_images && row < p.tile_rows && column >= 0 && column < p.row_pitch;
  }
  return (wanted ? place : pitch(tile) - 2) * 4;
}

// How many rows before a channel's first one the copy engine starts: it wants multiples of 16 bytes.
__device__ __forceinline__ int lead(const Params& p, int channel) {
  return p.resident ? 0 : channel * taps(p) & (vector_numbers(p.number_bytes) - 1);
}

// The pixel of its planes that a tile of an item starts with.
__device__ __forceinline__ int first_pixel(const Params& p, const Item& item, int row) {
  return row * p.x_w + (p.strips > 1 ? item.first_position + p.low_w : 0);
}

// Sets of neighbouring channels in a chunk: each channel is one, but for shifted tiles.
template <int ROW>
__device__ __forceinline__ int sets(const Params& p) {
  return kTiles[ROW].shifted ? p.depth >> p.set_shift : p.depth;
}

// Where x has been turned, or shifted.
__device__ __forceinline__ uint32_t helped_barrier(const StageRing& ring) {
  return ring.barriers + kHelpedAt + ring.index * 8;
}

// Calls `visit` with each tile of a block: its item and its first row of x.
template <class Visit>
__device__ __forceinline__ void for_tiles(const Params& p, const Scope& at, Visit&& visit) {
  for (int i = at.walker; i < p.items; i += p.walkers) {
    const Item item = item_of(p, i);
    for (int row = item.first_row; row < item.end_row; row += p.tile_rows) visit(item, row);
  }
}

}  // namespace convt2d::cuda::fold
