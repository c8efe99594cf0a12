// What a block of hopper's fetched grad_weight works on, and its K tiles on their way to shared memory: one warp asks the
// copy engine and lists where pixels stand; three others turn, shift or split x, clear what lies beside odd rows, and ask
// for these where they are many, or bring them.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/barrier.cuh"
#include "cuda/device/digits.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/strict_product.cuh"
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
  Digits number{int(blockIdx.x)};
  at.kernel_w = number.next(p.units_w) * p.unit_w;
  at.kernel_h = number.next(p.units_h) * p.unit_h;
  at.column_block = number.next(p.column_blocks);
  at.row_block = number.next(p.row_blocks);
  at.group = number.next(p.groups);
  at.piece = number.rest;
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
      const int first = rest * p.tile_pixels;
      h = first / p.x_w;
      w = first - h * p.x_w;
    } else {
      h = rest / p.row_tiles;
      w = (rest - h * p.row_tiles) * tile_pixels(p);
    }
  }
  __device__ __forceinline__ void advance(const FetchedWeightParams& p) {
    w += p.tile_pixels;
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

// Planes: the first number of dY that a tile needs, of a plane, which may lie before it.
__device__ __forceinline__ int run_start(const FetchedWeightParams& p, const FetchedWeightScope& at,
                                         const KTile& tile) {
  return patch_line(p, at, tile) * p.y_w + patch_column(p, at, tile) + tile.w * p.stride_w;
}

// Where the pixels of a ring's stage stand; and where its odd rows start, [line][residue] in bytes.
__device__ __forceinline__ uint32_t table_of(const StageRing& ring) {
  return ring.barriers + kFetchedTablesAt + ring.index * kTableBytes;
}
__device__ __forceinline__ uint32_t leads_of(const StageRing& ring) {
  return table_of(ring) + kMostTilePixels * 4;
}
// Planes: the first table of a ring's stage, which has that tile of an image.
template <int ROW>
__device__ __forceinline__ uint32_t tables_of(const FetchedWeightParams& p, const StageRing& ring,
                                              int tile_of_image) {
  return p.tables_stay ? ring.stages + p.stages * ring.bytes + tile_of_image * p.tables_bytes
                       : ring.stage() + planes_tables_at(p, kFetchedWeightTiles[ROW]);
}

// Where three warps have done their part.
__device__ __forceinline__ uint32_t helped_barrier(const StageRing& ring) {
  return ring.barriers + kHelpedAt + ring.index * 8;
}

// The element of dY that a brought patch starts with, which may lie before dY.
template <int ROW>
__device__ __forceinline__ int first_brought(const FetchedWeightParams& p,
                                             const FetchedWeightScope& at, const KTile& start) {
  if (linear(kFetchedWeightTiles[ROW]))
    return ((start.n * p.y_h + patch_line(p, at, start)) * p.y_w + patch_column(p, at, start)) *
           p.columns;
  const int channel =
      (start.n * p.groups + at.group) * p.columns + at.column_block * p.y_blocks * kPlaneChannels;
  return (channel * p.y_h + patch_line(p, at, start)) * p.y_w + patch_column(p, at, start);
}
// In bytes, how far into 16 of them.
__device__ __forceinline__ uint32_t brought_lead(const FetchedWeightParams& p, int first) {
  return first * p.element_bytes & 15;
}

// The pixel of a plane of x that a tile starts with.
__device__ __forceinline__ int plane_pixel(const FetchedWeightParams& p, const KTile& start) {
  return start.h * p.x_w + start.w;
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
  const uint32_t y = ring.stage() + y_at(tile);
  for (int i = part; i < p.patch_lines * p.residues; i += p.askers) {
    const int l = i >> p.residue_shift, residue = i & (p.residues - 1);
    const int h = line + l * p.line_step;
    // A row that is not there: beyond the last plane.
    const int first = by_planes(tile)       ? residue * plane + run_start(p, at, start)
                      : h >= 0 && h < p.y_h ? residue * plane + h * p.y_w + column
                                            : p.residues * plane;
    for (int block = 0; block < p.y_blocks; ++block)
      copy_box(y + block * p.y_block_bytes + l * p.line_bytes +
                   residue * residue_channels(p) * p.channel_bytes,
               map, ring.full(), (first & -vector) / (by_planes(tile) ? 4 / p.element_bytes : 1),
               channel + block * residue_channels(p), 0, start.n);
  }
}

// Shifted: a K tile's pixels of x, from the last multiple of 16 bytes on.
template <int ROW>
__device__ __forceinline__ void copy_shifted(const FetchedWeightParams& p, const CUtensorMap* map,
                                             const FetchedWeightScope& at, const StageRing& ring,
                                             const KTile& start) {
  constexpr FetchedWeightTile tile = kFetchedWeightTiles[ROW];
  const int plane = p.x_h * p.x_w, vector = 16 / p.element_bytes;
  const int channel = (at.group * p.rows + at.row_block * tile.width) >> p.x_residue_shift;
  const int rows = tile.width >> p.x_residue_shift;
  for (int residue = 0; residue < p.x_residues; ++residue)
    copy_box(ring.stage() + shifted_at(p, tile) + residue * rows * kShiftedRow, map, ring.full(),
             (residue * plane + plane_pixel(p, start)) & -vector, channel, 0, start.n);
}

// Planes of pairs: the numbers that come before a tile's first one.
template <int ROW>
__device__ __forceinline__ int pairs_lead(const FetchedWeightParams& p, int first) {
  return kFetchedWeightTiles[ROW].pairs ? first & 16 / p.element_bytes - 1 : 0;
}

// Planes: where a tile's pixels stand for each of the block's taps. Pairs have their only residue's lead here.
template <int ROW>
__device__ __forceinline__ void list_numbers(const FetchedWeightParams& p,
                                             const FetchedWeightScope& at, uint32_t tables,
                                             const KTile& start) {
  constexpr FetchedWeightTile tile = kFetchedWeightTiles[ROW];
  const int first = run_start(p, at, start);
  const int lead = pairs_lead<ROW>(p, first);
#pragma unroll 1
  for (int i = threadIdx.x % 32; i < tile_pixels(p); i += 32) {
    int h, w;
    start.pixel(p, i, h, w);
    uint32_t to = tables + number_place(place_in_table(p, i), p.element_bytes);
#pragma unroll 1
    for (int tap_h = 0; tap_h < p.unit_h; ++tap_h) {
      const int row = h * p.stride_h - p.pad_h + (at.kernel_h + tap_h) * p.dilation_h;
      const bool on_row = i < p.tile_pixels && h < p.x_h && row >= 0 && row < p.y_h;
      int column = w * p.stride_w - p.pad_w + at.kernel_w * p.dilation_w;
      for (int tap_w = 0; tap_w < p.unit_w; ++tap_w, to += kTableOfTap, column += p.dilation_w) {
        const bool there = on_row && column >= 0 && column < p.y_w;
        const uint32_t where[1] = {
            there ? static_cast<uint32_t>(p.element_bytes * (row * p.y_w + column - first + lead))
                  : static_cast<uint32_t>(p.zeros_at)};
        store_shared<1>(to, where);
      }
    }
  }
}
// Words, of which all are pixels of dY, or none: of two neighbouring pixels of x by a lane.
template <int ROW>
__device__ __forceinline__ void list_words(const FetchedWeightParams& p,
                                           const FetchedWeightScope& at, uint32_t tables,
                                           const KTile& start) {
  constexpr FetchedWeightTile tile = kFetchedWeightTiles[ROW];
  constexpr int kTaps = tile.instructions, kWords = row_words(tile);
  const int first = run_start(p, at, start), pair = threadIdx.x % 32;
  // A lead, which is added later, starts at a word, or in the middle of one as the first number does.
  const int zeros = p.zeros_at - 2 * (first & 1);
  int h, w;
  start.pixel(p, 2 * pair, h, w);
  uint32_t to = tables + pair_place(pair) * kWords * 4;
#pragma unroll 1
  for (int tap_h = 0; tap_h < p.unit_h; ++tap_h) {
    const int row = h * p.stride_h - p.pad_h + (at.kernel_h + tap_h) * p.dilation_h;
    const bool on_row = 2 * pair < p.tile_pixels && h < p.x_h && row >= 0 && row < p.y_h;
#pragma unroll 1
    for (int tap_w = 0; tap_w < p.unit_w; tap_w += kTaps, to += table_of_words(tile)) {
      const int column = w * p.stride_w - p.pad_w + at.kernel_w + tap_w & ~1;
#pragma unroll
      for (int word = 0; word < kWords; ++word) {
        const int here = column + 2 * word;
        const bool there = on_row && here >= 0 && here < p.y_w;
        const uint32_t where[1] = {
            static_cast<uint32_t>(there ? 2 * (row * p.y_w + here - first) : zeros)};
        store_shared<1>(to + word * 4, where);
      }
    }
  }
}

template <int ROW>
__device__ __forceinline__ void list_tile(const FetchedWeightParams& p,
                                          const FetchedWeightScope& at, uint32_t tables,
                                          const KTile& start) {
  if constexpr (kFetchedWeightTiles[ROW].planes == Planes::words) {
    list_words<ROW>(p, at, tables, start);
  } else {
    list_numbers<ROW>(p, at, tables, start);
  }
}
// Tables that stay, by the warp that asks and those that help, before their first tile.
template <int ROW>
__device__ __forceinline__ void list_image(const FetchedWeightParams& p,
                                           const FetchedWeightScope& at, const StageRing& ring) {
  constexpr int kWarps = 1 + kHelpers / 32;
  const int warp = threadIdx.x / 32 - consumers(kFetchedWeightTiles[ROW]) / 32;
#pragma unroll 1
  for (int i = warp; i < p.image_tiles && p.tables_stay; i += kWarps)
    list_tile<ROW>(p, at, tables_of<ROW>(p, ring, i), KTile(p, i));
}

// Zeros for what does not exist, at the end of every channel's line. By all helpers.
template <int ROW>
__device__ __forceinline__ void clear_ends(const FetchedWeightParams& p, uint32_t stage,
                                           int helper) {
  constexpr FetchedWeightTile tile = kFetchedWeightTiles[ROW];
  const int channels = block_columns(p, tile);
  for (int i = helper; i < channels; i += kHelpers)
    store_shared_16(stage + y_at(tile) + i * p.channel_bytes + p.zeros_at, {0, 0, 0, 0});
}

// All of a block's K tiles, by a warp or, where they take turns, by so many.
template <int ROW>
__device__ __forceinline__ void bring_tiles(const FetchedWeightParams& p,
                                            const FetchedWeightMaps& maps,
                                            const FetchedWeightScope& at, StageRing& ring,
                                            int turns) {
  constexpr FetchedWeightTile tile = kFetchedWeightTiles[ROW];
  const int lane = threadIdx.x % 32, pixels = tile_pixels(p), vector = 16 / p.element_bytes;
  const int x_channel = at.group * p.rows + at.row_block * tile.width;
  const int y_channel = at.group * p.columns + at.column_block * p.y_blocks * cell_channels(tile);
  const int last_line = p.patch_lines - 1 - (p.unit_h - 1) * p.tap_lines;
  const int last_pixel = p.apart ? p.patch_pixels - 1 : p.span - 1 - (p.unit_w - 1) * p.dilation_w;
  KTile start(p, at.begin);
  if constexpr (by_planes(tile)) list_image<ROW>(p, at, ring);
  int others = (threadIdx.x - consumers(tile)) / 32;  // before this warp's turn
  for (int k = at.begin; k < at.end; ++k, ring.advance(), start.advance(p)) {
    if constexpr (may_take_turns(tile)) {
      if (--others >= 0) continue;
      others = turns - 1;
    }
    const int line = patch_line(p, at, start), column = patch_column(p, at, start);
    const int first_number = column * pixel_numbers(p, tile);
    const bool from_vector = (!tile.channels_last || tile.pairs) && !p.odd_rows && !p.brought;
    const int chunk = tile.channels_last ? 1 << p.chunk_shift : p.row_start;
    const int lead = from_vector ? first_number & (chunk - 1) : 0;
    const uint32_t brought = p.brought ? brought_lead(p, first_brought<ROW>(p, at, start)) : 0;
    barrier_wait(ring.empty(), ring.parity ^ 1);
    // Parts of rows start at multiples of their length: then a stage's table stays.
    const bool anew = p.runs || p.brought || k - at.begin < p.stages;
    if constexpr (by_planes(tile)) {
      if (!p.tables_stay) list_tile<ROW>(p, at, tables_of<ROW>(p, ring, 0), start);
    }
    for (int i = lane; i < pixels && anew && !by_planes(tile); i += 32) {
      int h, w;
      start.pixel(p, i, h, w);
      // Beyond the last row of an image, and beyond a row, x is zero: any pixel will do.
      const int on_line = min((h - start.h) * p.row_lines, last_line);
      const int inside = min((w - (p.runs ? 0 : start.w)) * p.pixel_step, last_pixel);
      const uint32_t where[1] = {static_cast<uint32_t>(on_line * p.line_bytes +
                                                       inside * p.pixel_bytes +
                                                       lead * p.element_bytes) +
                                 brought};
      store_shared<1>(table_of(ring) + place_in_table(p, i) * 4, where);
    }
    if (p.odd_rows && lane < p.patch_lines * p.residues) {
      const int l = lane >> p.residue_shift, residue = lane & (p.residues - 1);
      const int first = by_planes(tile)
                            ? residue * p.y_h * p.y_w + run_start(p, at, start)
                            : (residue * p.y_h + line + l * p.line_step) * p.y_w + column;
      const bool there =
          by_planes(tile) || (line + l * p.line_step >= 0 && line + l * p.line_step < p.y_h);
      const uint32_t lead[1] = {
          there ? static_cast<uint32_t>((first & (vector - 1)) * p.element_bytes) : 0};
      store_shared<1>(leads_of(ring) + lane * 4, lead);
    }
    // Every lane has written a part of the table.
    if (lane > 0) {
      barrier_arrive(ring.full());
    } else {
      barrier_expect(ring.full(), copied_bytes(p, tile));
      const uint32_t y = ring.stage() + y_at(tile);
      const int x_w = p.runs ? plane_pixel(p, start) : start.w, x_h = p.runs ? 0 : start.h;
      if constexpr (!tile.channels_last) {
        if (p.shifted) {
          copy_shifted<ROW>(p, &maps.x, at, ring, start);
        } else {
          copy_box(ring.stage(), &maps.x, ring.full(), x_w, x_h, x_channel, start.n);
        }
        if (p.odd_rows) copy_odd_rows<ROW>(p, &maps.y, at, ring, start, 0);
        for (int i = 0; i < p.y_blocks && !p.odd_rows && !p.brought; ++i)
          copy_box(y + i * p.y_block_bytes, &maps.y, ring.full(), first_number - lead,
                   y_channel + i * kPlaneChannels, line, start.n);
      } else if constexpr (tile.turned) {
        constexpr int kBlock = turned_row(tile) / 2;  // channels
        for (int i = 0; i < tile.width / kBlock; ++i)
          copy_box(ring.stage() + i * turned_block(tile), &maps.x, ring.full(),
                   x_channel + i * kBlock, x_w, x_h, start.n);
        if (!p.brought)
          copy_box(y, &maps.y, ring.full(), 0, first_number >> p.chunk_shift, line, start.n);
      } else if (p.whole_squares) {
        copy_box(ring.stage(), &maps.x, ring.full(), 0, x_w, x_h, x_channel / kSquare, start.n);
        for (int tap = 0; tap < p.tap_copies; ++tap)
          copy_box(y + tap * p.tap_bytes, &maps.y, ring.full(), 0, column + tap * p.dilation_w,
                   line, y_channel / kSquare, start.n);
      } else {
        for (int i = 0; i < tile.width / kSquare && !brings_x(p, tile); ++i)
          copy_box(ring.stage() + i * kSquareBytes, &maps.x, ring.full(), x_channel + i * kSquare,
                   x_w, x_h, start.n);
        if constexpr (tile.pairs) {
          if (!p.brought)
            copy_box(y, &maps.y, ring.full(), 0, first_number >> p.chunk_shift, line, start.n);
        } else {
          for (int tap = 0; tap < p.tap_copies; ++tap)
            for (int i = 0; i < p.y_blocks; ++i)
              copy_box(y + tap * p.tap_bytes + i * p.y_block_bytes, &maps.y, ring.full(),
                       y_channel + i * kSquare, column + tap * p.dilation_w, line, start.n);
        }
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
    for (int j = 0; j < 4; ++j) word[j] = cut_off(word[j]);
    store_shared_16(stage + x_bytes(tile) + i, word);
  }
}

// Pixels of x to where they belong, from a row of each channel that starts with something else; beyond the plane, or the
// row, zeros. A lane takes a word, a warp every eighth channel: these start, and end, at the same place of 16 bytes. In
// strict fp32 what the tensor core cuts off goes behind them too.
template <int ROW>
__device__ __forceinline__ void shift_x(const FetchedWeightParams& p, uint32_t stage,
                                        const KTile& start, int helper) {
  constexpr FetchedWeightTile tile = kFetchedWeightTiles[ROW];
  constexpr int kParts = 2, kRows = tile.width / (8 * kParts);  // of eight channels each
  constexpr int kAtOnce = kRows < 8 ? kRows : 8;
  const int lane = helper % 32, plane = p.x_h * p.x_w, first = plane_pixel(p, start);
  const int numbers = 4 / p.element_bytes;  // of a word
  const int left = (p.runs ? plane - first : p.x_w - start.w) - lane * numbers;
  const uint32_t there = left >= numbers ? ~0u : left > 0 ? 0xffffu : 0u;
  const uint32_t from_step = (8 >> p.x_residue_shift) * kShiftedRow;
  for (int part = helper / 32; part < 8 * kParts; part += kHelpers / 32) {
    const int channel = part % 8, residue = channel & (p.x_residues - 1);
    const uint32_t lead = (residue * plane + first) * p.element_bytes & 15;
    const uint32_t row =
        residue * (tile.width >> p.x_residue_shift) + (channel >> p.x_residue_shift);
    uint32_t from = stage + shifted_at(p, tile) + row * kShiftedRow + lane * 4 + (lead & ~3u) +
                    part / 8 * kRows * from_step;
    uint32_t to = stage + (part / 8 * kRows * 8 + channel) * kKRow + (lane * 4 ^ channel << 4);
    const uint32_t select = lead & 2 ? 0x5432 : 0x3210;
#pragma unroll 1
    for (int i = 0; i < kRows; i += kAtOnce) {
      uint32_t word[kAtOnce][2];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j, from += from_step) {
        word[j][0] = load_shared_4(from);
        word[j][1] = lead & 2 ? load_shared_4(from + 4) : 0;  // a row has 16 bytes more than lanes
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j, to += 8 * kKRow) {
        const uint32_t pixels = __byte_perm(word[j][0], word[j][1], select) & there;
        store_shared_4(to, pixels);
        if constexpr (tile.strict) store_shared_4(to + x_bytes(tile), cut_off(pixels));
      }
    }
  }
}

// The same where two planes are whole vectors and tiles are runs, so that all start at multiples of 8 bytes: a half warp
// takes a channel, a lane 8 bytes.
template <int ROW>
__device__ __forceinline__ void shift_x_of_two(const FetchedWeightParams& p, uint32_t stage,
                                               const KTile& start, int helper) {
  constexpr FetchedWeightTile tile = kFetchedWeightTiles[ROW];
  constexpr int kPairs = tile.width / 2, kAtOnce = 4, kWarps = kHelpers / 32;
  static_assert(2 * kAtOnce == 8 && kPairs % kAtOnce == 0);  // channels whose pieces are permuted
  const int lane = helper % 16, residue = helper / 16 % 2, plane = p.x_h * p.x_w;
  const int numbers = p.element_bytes == 4 ? 1 : 2;  // of a word; dividing took as long as a step
  const int first = plane_pixel(p, start), left = plane - first - lane * 2 * numbers;
  uint32_t there[2];
#pragma unroll
  for (int i = 0; i < 2; ++i)
    there[i] = left >= (i + 1) * numbers ? ~0u : left > i * numbers ? 0xffffu : 0u;
  int pair = helper / 32 * kAtOnce;
  uint32_t from = stage + shifted_at(p, tile) + (residue * kPairs + pair) * kShiftedRow +
                  ((residue * plane + first) * p.element_bytes & 15) + lane * 8;
  uint32_t to = stage + (2 * pair + residue) * kKRow + (lane * 8 ^ residue << 4);
#pragma unroll 1
  for (; pair < kPairs; pair += kAtOnce * kWarps) {
    uint32_t word[kAtOnce][2];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) load_shared_8(from + j * kShiftedRow, word[j]);
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j)
      store_shared<2>((to ^ j << 5) + j * 2 * kKRow,
                      {word[j][0] & there[0], word[j][1] & there[1]});
    from += kAtOnce * kWarps * kShiftedRow;
    to += 2 * kAtOnce * kWarps * kKRow;
  }
}

// A number as the copy engine brings it: rounded to what the tensor core takes.
__device__ __forceinline__ uint32_t rounded(uint32_t word) {
  const float number = __uint_as_float(word);
  return number != number ? 0x7fffe000u : MmaTF32::round(word) & 0xffffe000u;
}

// A square of x, from rows of channels to rows of pixels, swizzled as wgmma wants them. A lane takes a channel.
__device__ __forceinline__ void turn_square(uint32_t square, bool brought) {
  const uint32_t lane = threadIdx.x % 32;
  uint32_t word[kSquare];
#pragma unroll
  for (int i = 0; i < kSquare; ++i) {
    word[i] = load_shared_4(square + i * kKRow + lane * 4);
    if (brought) word[i] = rounded(word[i]);
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kSquare / 4; ++i)
    store_shared_16(square + lane * kKRow + ((i ^ lane & 7) << 4),
                    {word[4 * i], word[4 * i + 1], word[4 * i + 2], word[4 * i + 3]});
}

// Squares of x of a K tile, by all helpers: lanes take neighbouring pieces of the 32 channels of one or two pixels.
template <int ROW, int PIECE>
__device__ __forceinline__ void bring_squares(const FetchedWeightParams& p,
                                              const FetchedWeightScope& at, const StageRing& ring,
                                              const KTile& start, int helper) {
  constexpr int kLanes = kKRow / PIECE, kWidth = kFetchedWeightTiles[ROW].width;
  const int left = p.runs ? p.x_h * p.x_w - plane_pixel(p, start) : p.x_w - start.w;
  const int channel = helper % kLanes * (PIECE / 4), all = p.groups * p.rows;
  const int first = at.row_block * kWidth + channel;  // of the group's
  const int64_t plane = int64_t{start.n} * p.x_h * p.x_w + plane_pixel(p, start);
  constexpr int kAtOnce = kHelpers / kLanes;  // pixels
  const float* from =
      static_cast<const float*>(p.x) + (plane + helper / kLanes) * all + at.group * p.rows + first;
  const uint32_t to = ring.stage() + helper / kLanes * kKRow + channel * 4;
  // No loop, since a copy alone takes a thread longer than what is known of the next ones.
#pragma unroll
  for (int next = 0; next < kSquare; next += kAtOnce, from += kAtOnce * all) {
    const int pixel = next + helper / kLanes;
    if (pixel >= kSquare) break;
#pragma unroll
    for (int i = 0; i < kWidth / kSquare; ++i) {
      const bool there = pixel < left && first + i * kSquare < p.rows;
      copy_async<PIECE>(to + next * kKRow + i * kSquareBytes,
                        there ? from + i * kSquare : static_cast<const float*>(p.x), there);
    }
  }
  copy_async_arrive(ring.full());
}

// Brought rows of a K tile, by all helpers: a lane takes 16 bytes of a line, a warp channels that are eight apart, which
// start at the same place of 16 bytes. Lines that are not there become zeros.
template <int ROW>
__device__ __forceinline__ void bring_rows(const FetchedWeightParams& p,
                                           const FetchedWeightScope& at, const StageRing& ring,
                                           const KTile& start, int helper) {
  constexpr FetchedWeightTile tile = kFetchedWeightTiles[ROW];
  const int size = p.element_bytes, vector = 16 / size, plane = p.y_h * p.y_w;
  const int first = first_brought<ROW>(p, at, start), line = patch_line(p, at, start);
  const int channels =
      min(p.y_blocks * kPlaneChannels, p.columns - at.column_block * p.y_blocks * kPlaneChannels);
  const bool whole = first >= 0 && first + (channels - 1) * plane + p.line_reach <= p.y_elements;
  const uint32_t y = ring.stage() + y_at(tile) + brought_lead(p, first);
  const int to_step = 8 * p.channel_bytes, from_step = 8 * plane * size;
  const char* const source = static_cast<const char*>(p.y);
#pragma unroll 1
  for (int piece = helper % 32; piece < p.patch_lines * p.line_pieces; piece += 32) {
    const int l = piece / p.line_pieces, part = piece - l * p.line_pieces;
    const int h = line + l * p.line_step, bytes = h >= 0 && h < p.y_h ? 16 : 0;
    const int on_line = first + l * p.line_step * p.y_w;
#pragma unroll 1
    for (int channel = helper / 32; channel < 8; channel += kHelpers / 32) {
      uint32_t to = (y + l * p.line_bytes + channel * p.channel_bytes & ~15u) + part * 16;
      const int element = (on_line + channel * plane & -vector) + part * vector;
      if (whole) {
        const char* from = source + int64_t{element} * size;
#pragma unroll 4
        for (int i = channel; i < channels; i += 8, to += to_step, from += from_step)
          copy_async_16_part(to, from, bytes);
      } else {  // some of it is before or behind the tensor
#pragma unroll 1
        for (int i = channel, from = element; i < channels;
             i += 8, to += to_step, from += 8 * plane) {
          const bool there = from >= 0 && from < p.y_elements && bytes > 0;
          copy_async_16_part(to, source + (there ? int64_t{from} * size : 0),
                             there ? min((p.y_elements - from) * size, 16) : 0);
        }
      }
    }
  }
  copy_async_arrive(ring.full());
}

// The same of linear dY, whose lines are of all channels: a thread takes every 96th 16 bytes.
template <int ROW>
__device__ __forceinline__ void bring_lines(const FetchedWeightParams& p,
                                            const FetchedWeightScope& at, const StageRing& ring,
                                            const KTile& start, int helper) {
  constexpr FetchedWeightTile tile = kFetchedWeightTiles[ROW];
  const int size = p.element_bytes, vector = 16 / size;
  const int first = first_brought<ROW>(p, at, start), line = patch_line(p, at, start);
  const uint32_t y = ring.stage() + y_at(tile) + brought_lead(p, first);
  const char* const source = static_cast<const char*>(p.y);
  int l = helper / p.line_pieces, part = helper - l * p.line_pieces;
#pragma unroll 2
  while (l < p.patch_lines) {
    const int h = line + l * p.line_step;
    const int from = (first + l * p.line_step * p.y_w * p.columns & -vector) + part * vector;
    const bool there = h >= 0 && h < p.y_h && from >= 0 && from < p.y_elements;
    copy_async_16_part((y + l * p.line_bytes & ~15u) + part * 16,
                       source + (there ? int64_t{from} * size : 0),
                       there ? min(p.y_elements - from, vector) * size : 0);
    for (part += kHelpers; part >= p.line_pieces; part -= p.line_pieces) ++l;
  }
  copy_async_arrive(ring.full());
}

// Zeros for what came from beside linear dY's rows: a warp takes every third line.
template <int ROW>
__device__ __forceinline__ void clear_beside_lines(const FetchedWeightParams& p,
                                                   const FetchedWeightScope& at,
                                                   const StageRing& ring, const KTile& start,
                                                   int helper) {
  constexpr FetchedWeightTile tile = kFetchedWeightTiles[ROW];
  const int column = patch_column(p, at, start);
  const int before = min(p.span, max(0, -column)) * p.columns;
  const int from = min(p.span, max(0, p.y_w - column)) * p.columns, end = p.span * p.columns;
  uint32_t numbers = ring.stage() + y_at(tile) + brought_lead(p, first_brought<ROW>(p, at, start)) +
                     helper / 32 * p.line_bytes;
  for (int i = helper / 32; i < p.patch_lines; i += kHelpers / 32) {
    const auto clear = [&](int first, int last) {
      for (int w = first + helper % 32; w < last; w += 32) {
        if constexpr (kFetchedWeightTiles[ROW].turned) {
          store_shared_2(numbers + w * 2, 0);
        } else {
          store_shared_4(numbers + w * 4, 0);
        }
      }
    };
    clear(0, before);
    clear(max(from, before), end);
    numbers += kHelpers / 32 * p.line_bytes;
  }
}

// Zeros for what came from beside dY's rows. A lane takes a channel, a warp every third line.
template <int ROW>
__device__ __forceinline__ void clear_beside(const FetchedWeightParams& p,
                                             const FetchedWeightScope& at, const StageRing& ring,
                                             const KTile& start, int helper) {
  constexpr FetchedWeightTile tile = kFetchedWeightTiles[ROW];
  const int column = patch_column(p, at, start);
  const int before = min(p.span, max(0, -column)), end = min(p.span, max(0, p.y_w - column));
  if (before == 0 && end == p.span) return;
  const int lane = helper % 32;
  for (int i = helper / 32; i < p.y_blocks * p.patch_lines; i += kHelpers / 32) {
    const int block = i / p.patch_lines, line = i - block * p.patch_lines;
    uint32_t pixels = ring.stage() + y_at(tile) + block * p.y_block_bytes + line * p.line_bytes +
                      lane * p.channel_bytes;
    if (p.brought) pixels += brought_lead(p, first_brought<ROW>(p, at, start));
#pragma unroll
    for (int row = 0; row < kPlaneChannels; row += 32, pixels += 32 * p.channel_bytes) {
      if (tile.pairs && row + lane >= p.columns) break;
      const uint32_t lead =
          p.brought
              ? 0
              : load_shared_4(leads_of(ring) + (line * p.residues + residue_of(p, row + lane)) * 4);
      const auto clear = [&](int from, int to) {
        for (int w = from; w < to; ++w) {
          if (p.element_bytes == 4) {
            store_shared_4(pixels + lead + w * 4, 0);
          } else {
            store_shared_2(pixels + lead + w * 2, 0);
          }
        }
      };
      clear(0, before);
      clear(end, p.span);
    }
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
  const bool brings = (!turns_squares(tile) || tile.pairs || may_bring_x(tile)) &&
                      (p.askers > 1 || p.brought || brings_x(p, tile));
  const int ahead = brings ? p.stages - 2 : 0;
  if constexpr (by_planes(tile)) list_image<ROW>(p, at, ring);
  for (int k = at.begin - ahead; k < at.end; ++k) {
    if (brings && k + ahead < at.end) {
      barrier_wait(asked.empty(), asked.parity ^ 1);
      if constexpr (may_bring_x(tile)) {
        if (p.x_piece == 8) {
          bring_squares<ROW, 8>(p, at, asked, next, helper);
        } else {
          bring_squares<ROW, 4>(p, at, asked, next, helper);
        }
      } else if constexpr (linear(tile)) {
        bring_lines<ROW>(p, at, asked, next, helper);
      } else if (p.brought) {
        bring_rows<ROW>(p, at, asked, next, helper);
      } else if (helper % 32 == 0) {
        copy_odd_rows<ROW>(p, &maps.y, at, asked, next, helper / 32 + 1);
      }
      __syncwarp();
      asked.advance();
      next.advance(p);
    }
    if (k < at.begin) continue;
    barrier_wait(ring.full(), ring.parity);
    if constexpr (turns_squares(tile)) {
      for (; square < kSquares; square += kHelpers / 32)
        turn_square(ring.stage() + square * kSquareBytes, brings_x(p, tile));
      square -= kSquares;
    }
    if constexpr (linear(tile)) {
      if (p.brought) clear_beside_lines<ROW>(p, at, ring, start, helper);
    } else if constexpr (!tile.channels_last) {
      if (by_planes(tile) && p.x_residues == 2) {
        shift_x_of_two<ROW>(p, ring.stage(), start, helper);
      } else if (p.shifted) {
        shift_x<ROW>(p, ring.stage(), start, helper);
      } else if constexpr (tile.strict) {
        split_x<ROW>(ring.stage(), helper);
      }
      if constexpr (by_planes(tile)) {
        clear_ends<ROW>(p, ring.stage(), helper);
      } else if (p.odd_rows || p.brought) {
        clear_beside<ROW>(p, at, ring, start, helper);
      }
    }
    fence_for_wgmma();
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(helped_barrier(ring));
    ring.advance();
    start.advance(p);
  }
}

}  // namespace convt2d::cuda::hopper
