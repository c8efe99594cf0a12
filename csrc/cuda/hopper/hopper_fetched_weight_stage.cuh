// What a block of hopper's fetched grad_weight works on, and its K tiles on their way to shared memory: one warp asks the
// copy engine and lists where pixels stand; three others turn or split x, clear what lies beside odd rows, and ask for
// these where they are many.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/barrier.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/hopper/hopper_fetched_weight.h"

namespace convt2d::cuda::hopper {

// The channels, taps and K tiles of a block.
struct FetchedWeightScope {
  int group, row_block, column_block;
  int kernel_h, kernel_w;  // of its first tap
  int piece, begin, end;
};

// Neighbouring blocks read the same pixels, at about the same time.
__device__ __forceinline__ FetchedWeightScope fetched_weight_scope(const FetchedWeightParams& p) {
  FetchedWeightScope at;
  int rest = blockIdx.x;
  const auto digit = [&](int count) {
    const int found = rest % count;
    rest /= count;
    return found;
  };
  at.kernel_w = digit(p.units_w) * p.unit_w;
  at.kernel_h = digit(p.units_h) * p.unit_h;
  at.column_block = digit(p.column_blocks);
  at.row_block = digit(p.row_blocks);
  at.group = digit(p.groups);
  at.piece = rest;
  const int64_t tiles = int64_t{p.batch} * p.image_tiles;
  at.begin = static_cast<int>(tiles * at.piece / p.split);
  at.end = static_cast<int>(tiles * (at.piece + 1) / p.split);
  return at;
}

// Where a K tile starts, and then the next ones.
struct KTile {
  int n, h, w;  // of its first pixel
  __device__ __forceinline__ KTile(const FetchedWeightParams& p, int tile) {
    n = tile / p.image_tiles;
    const int rest = tile - n * p.image_tiles;
    if (p.runs) {
      const int first = rest * tile_pixels(p);
      h = first / p.x_w;
      w = first - h * p.x_w;
    } else {
      h = rest / p.row_tiles;
      w = (rest - h * p.row_tiles) * tile_pixels(p);
    }
  }
  __device__ __forceinline__ void advance(const FetchedWeightParams& p) {
    w += tile_pixels(p);
    if (w >= p.x_w && !p.runs) w = 0, ++h;
    while (w >= p.x_w) w -= p.x_w, ++h;
    if (h >= p.x_h) h = w = 0, ++n;
  }
  // The same of one of its pixels.
  __device__ __forceinline__ void pixel(const FetchedWeightParams& p, int i, int& row,
                                        int& column) const {
    row = h, column = w + i;
    if (!p.runs) return;
    const int rows = column / p.x_w;
    row += rows;
    column -= rows * p.x_w;
  }
};

// The row and column of dY that a tile's patch starts with, for the block's first tap.
__device__ __forceinline__ int patch_line(const FetchedWeightParams& p,
                                          const FetchedWeightScope& at, const KTile& tile) {
  return tile.h * p.stride_h - p.pad_h + at.kernel_h * p.dilation_h;
}
__device__ __forceinline__ int patch_column(const FetchedWeightParams& p,
                                            const FetchedWeightScope& at, const KTile& tile) {
  return (p.runs ? 0 : tile.w * p.stride_w) - p.pad_w + at.kernel_w * p.dilation_w;
}

// Where the pixels of a ring's stage stand; and where its odd rows start, [line][residue] in bytes.
__device__ __forceinline__ uint32_t table_of(const StageRing& ring) {
  return ring.barriers + kFetchedTablesAt + ring.index * kTableBytes;
}
__device__ __forceinline__ uint32_t leads_of(const StageRing& ring) {
  return table_of(ring) + kMostTilePixels * 4;
}

// Where three warps have done their part.
__device__ __forceinline__ uint32_t helped_barrier(const StageRing& ring) {
  return ring.barriers + kHelpedAt + ring.index * 8;
}

// Odd rows: one of the threads that ask does so for its part of a tile's pixels of dY.
template <int ROW>
__device__ __forceinline__ void copy_odd_rows(const FetchedWeightParams& p, const CUtensorMap* map,
                                              const FetchedWeightScope& at, const StageRing& ring,
                                              const KTile& start, int part) {
  constexpr FetchedWeightTile tile = kFetchedWeightTiles[ROW];
  const int line = patch_line(p, at, start), column = patch_column(p, at, start);
  const int plane = p.y_h * p.y_w, vector = 16 / p.element_bytes;  // where a copy may start
  const int channel =
      (at.group * p.columns + at.column_block * p.y_blocks * kPlaneChannels) >> p.residue_shift;
  const uint32_t y = ring.stage() + x_bytes(tile) + low_bytes(tile);
  for (int i = part; i < p.patch_lines * p.residues; i += p.askers) {
    const int l = i >> p.residue_shift, residue = i & (p.residues - 1);
    const int h = line + l * p.dilation_h;
    // A row that is not there: beyond the last plane.
    const int first =
        h >= 0 && h < p.y_h ? residue * plane + h * p.y_w + column : p.residues * plane;
    for (int block = 0; block < p.y_blocks; ++block)
      copy_box(y + block * p.y_block_bytes + l * p.line_bytes +
                   residue * residue_channels(p) * p.channel_bytes,
               map, ring.full(), first & -vector, channel + block * residue_channels(p), 0,
               start.n);
  }
}

// All of a block's K tiles, by one warp.
template <int ROW>
__device__ __forceinline__ void bring_tiles(const FetchedWeightParams& p,
                                            const FetchedWeightMaps& maps,
                                            const FetchedWeightScope& at, StageRing& ring) {
  constexpr FetchedWeightTile tile = kFetchedWeightTiles[ROW];
  const int lane = threadIdx.x % 32, pixels = tile_pixels(p), vector = 16 / p.element_bytes;
  const int x_channel = at.group * p.rows + at.row_block * tile.width;
  const int y_channel = at.group * p.columns + at.column_block * p.y_blocks * cell_channels(tile);
  const int last_line = p.patch_lines - 1 - (p.unit_h - 1) * p.tap_lines;
  const int last_pixel = p.span - 1 - (p.unit_w - 1) * p.dilation_w;
  KTile start(p, at.begin);
  for (int k = at.begin; k < at.end; ++k, ring.advance(), start.advance(p)) {
    const int line = patch_line(p, at, start), column = patch_column(p, at, start);
    const int lead = tile.channels_last || p.odd_rows ? 0 : column & (vector - 1);
    barrier_wait(ring.empty(), ring.parity ^ 1);
    // Parts of rows start at multiples of their length: a stage's table stays.
    for (int i = lane; i < pixels && (p.runs || k - at.begin < p.stages); i += 32) {
      int h, w;
      start.pixel(p, i, h, w);
      // Beyond the last row of an image, and beyond a row, x is zero: any pixel will do.
      const int on_line = min((h - start.h) * p.row_lines, last_line);
      const int inside = min((w - (p.runs ? 0 : start.w)) * p.stride_w, last_pixel) + lead;
      const uint32_t where[1] = {
          static_cast<uint32_t>(on_line * p.line_bytes + inside * p.pixel_bytes)};
      store_shared<1>(table_of(ring) + i * 4, where);
    }
    if (p.odd_rows && lane < p.patch_lines * p.residues) {
      const int l = lane >> p.residue_shift, residue = lane & (p.residues - 1);
      const int first = (residue * p.y_h + line + l * p.dilation_h) * p.y_w + column;
      const bool there = line + l * p.dilation_h >= 0 && line + l * p.dilation_h < p.y_h;
      const uint32_t lead[1] = {
          there ? static_cast<uint32_t>((first & (vector - 1)) * p.element_bytes) : 0};
      store_shared<1>(leads_of(ring) + lane * 4, lead);
    }
    // Every lane has written a part of the table.
    if (lane > 0) {
      barrier_arrive(ring.full());
    } else {
      barrier_expect(ring.full(), copied_bytes(p, tile));
      const uint32_t y = ring.stage() + x_bytes(tile) + low_bytes(tile);
      const int x_w = p.runs ? start.h * p.x_w + start.w : start.w, x_h = p.runs ? 0 : start.h;
      if constexpr (!tile.channels_last) {
        copy_box(ring.stage(), &maps.x, ring.full(), x_w, x_h, x_channel, start.n);
        if (p.odd_rows) copy_odd_rows<ROW>(p, &maps.y, at, ring, start, 0);
        for (int i = 0; i < p.y_blocks && !p.odd_rows; ++i)
          copy_box(y + i * p.y_block_bytes, &maps.y, ring.full(), column - lead,
                   y_channel + i * kPlaneChannels, line, start.n);
      } else if (p.whole_squares) {
        copy_box(ring.stage(), &maps.x, ring.full(), 0, x_w, x_h, x_channel / kSquare, start.n);
        copy_box(y, &maps.y, ring.full(), 0, column, line, y_channel / kSquare, start.n);
      } else {
        for (int i = 0; i < tile.width / kSquare; ++i)
          copy_box(ring.stage() + i * kSquareBytes, &maps.x, ring.full(), x_channel + i * kSquare,
                   x_w, x_h, start.n);
        for (int i = 0; i < p.y_blocks; ++i)
          copy_box(y + i * p.y_block_bytes, &maps.y, ring.full(), y_channel + i * kSquare, column,
                   line, start.n);
      }
    }
    __syncwarp();
  }
}

// What the tensor core cuts off of the numbers of x goes behind them. By all helpers, of whom this is one.
template <int ROW>
__device__ __forceinline__ void split_x(uint32_t stage, int helper) {
  constexpr FetchedWeightTile tile = kFetchedWeightTiles[ROW];
#pragma unroll 2
  for (int i = helper * 16; i < x_bytes(tile); i += kHelpers * 16) {
    uint32_t word[4];
    load_shared_16(stage + i, word);
#pragma unroll
    for (int j = 0; j < 4; ++j)
      word[j] = MmaTF32::round(
          __float_as_uint(__uint_as_float(word[j]) - __uint_as_float(word[j] & 0xffffe000u)));
    store_shared_16(stage + x_bytes(tile) + i, word);
  }
}

// A square of x, from rows of channels to rows of pixels, swizzled as wgmma wants them. A lane takes a channel.
__device__ __forceinline__ void turn_square(uint32_t square) {
  const uint32_t lane = threadIdx.x % 32;
  uint32_t word[kSquare];
#pragma unroll
  for (int i = 0; i < kSquare; ++i) word[i] = load_shared_4(square + i * kKRow + lane * 4);
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kSquare / 4; ++i)
    store_shared_16(square + lane * kKRow + ((i ^ lane & 7) << 4),
                    {word[4 * i], word[4 * i + 1], word[4 * i + 2], word[4 * i + 3]});
}

// Odd rows: zeros for what was brought from beside dY's rows.
template <int ROW>
__device__ __forceinline__ void clear_beside(const FetchedWeightParams& p,
                                             const FetchedWeightScope& at, const StageRing& ring,
                                             const KTile& start, int helper) {
  constexpr FetchedWeightTile tile = kFetchedWeightTiles[ROW];
  const int column = patch_column(p, at, start);
  const int before = min(p.span, max(0, -column)), end = min(p.span, max(0, p.y_w - column));
  if (before == 0 && end == p.span) return;
  for (int i = helper; i < p.y_blocks * p.patch_lines * kPlaneChannels; i += kHelpers) {
    const int row = i % kPlaneChannels, block_line = i / kPlaneChannels;
    const int block = block_line / p.patch_lines, line = block_line - block * p.patch_lines;
    const uint32_t pixels =
        ring.stage() + x_bytes(tile) + low_bytes(tile) + block * p.y_block_bytes +
        line * p.line_bytes + row * p.channel_bytes +
        load_shared_4(leads_of(ring) + (line * p.residues + residue_of(p, row)) * 4);
    const auto clear = [&](int from, int to) {
      for (int w = from; w < to; ++w) {
        if (p.element_bytes == 4) {
          store_shared<1>(pixels + w * 4, {0});
        } else {
          store_shared_2(pixels + w * 2, 0);
        }
      }
    };
    clear(0, before);
    clear(end, p.span);
  }
}

// What three warps do for every K tile. Many odd rows they ask for as well, so far ahead that they need not wait for the
// tile before the one that they are to work on.
template <int ROW>
__device__ __forceinline__ void help_tiles(const FetchedWeightParams& p,
                                           const FetchedWeightMaps& maps,
                                           const FetchedWeightScope& at, StageRing& ring) {
  constexpr FetchedWeightTile tile = kFetchedWeightTiles[ROW];
  constexpr int kSquares = tile.width / kSquare;
  const int helper = threadIdx.x - (threads(tile) - kHelpers);
  int square = helper / 32;  // of x; they go round
  StageRing asked = ring;
  KTile start(p, at.begin), next = start;
  const int ahead = p.askers > 1 ? max(p.stages - 2, 1) : 0;
  for (int k = at.begin - ahead; k < at.end; ++k) {
    if (!tile.channels_last && p.askers > 1 && k + ahead < at.end) {
      barrier_wait(asked.empty(), asked.parity ^ 1);
      if (helper % 32 == 0) copy_odd_rows<ROW>(p, &maps.y, at, asked, next, helper / 32 + 1);
      __syncwarp();
      asked.advance();
      next.advance(p);
    }
    if (k < at.begin) continue;
    barrier_wait(ring.full(), ring.parity);
    if constexpr (tile.channels_last) {
      for (; square < kSquares; square += kHelpers / 32)
        turn_square(ring.stage() + square * kSquareBytes);
      square -= kSquares;
    } else {
      if constexpr (tile.strict) split_x<ROW>(ring.stage(), helper);
      if (p.odd_rows) clear_beside<ROW>(p, at, ring, start, helper);
    }
    fence_for_wgmma();
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(helped_barrier(ring));
    ring.advance();
    start.advance(p);
  }
}

}  // namespace convt2d::cuda::hopper
