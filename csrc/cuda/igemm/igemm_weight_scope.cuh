// What a block of the grad_weight kernel knows about its work, and the tables it keeps in shared memory.
#pragma once

#include "cuda/gather_device.cuh"
#include "cuda/igemm/igemm_weight_config.h"

namespace convt2d::cuda::igemm {

// The taps, channels and pixels a block works on. Plain values, so that all of it stays in registers.
struct WeightScope {
  int group, row_block, octet_block, piece;
  int first_h, taps_h, first_w, taps_w;  // ranks of its taps
  int patch_h, patch_w, runs, y_entries, x_entries;
  int first_column;          // dY column of the first load, from the tile's first
  uint32_t runs_magic, patch_h_magic, x_magic, y_magic;
  int units;
  int begin, end;  // K tiles
};

// What the block's tables are, as pointers into shared memory. Each lasts for the block, but the sources,
// of which there are those of two tiles.
struct WeightTables {
  int *rows, *runs;                // dY rows and columns of the patch, from the tile's first
  uint32_t *run_rows, *y_rows;     // patch columns, patch pixels: two 16-bit numbers, 0xffff: none
  int *units, *shifts, *bases;     // see WeightMap
  unsigned char *x_valid, *y_valid;
  int *x_sources, *y_sources;
};

__device__ __forceinline__ WeightTables weight_tables(unsigned char* smem, const WeightMap& map,
                                                      const WeightParams& p) {
  const auto ints = [&](int offset) { return reinterpret_cast<int*>(smem + offset); };
  const auto words = [&](int offset) { return reinterpret_cast<uint32_t*>(smem + offset); };
  return {ints(map.rows),       ints(map.runs),          words(map.run_rows),
          words(map.y_rows),    ints(map.units),         ints(map.shifts),
          ints(map.bases),      smem + map.valid,        smem + map.valid + p.pixels,
          ints(map.x_sources),  ints(map.y_sources)};
}

// The patch row after those of one tap.
__device__ __forceinline__ int rows_after(const WeightAxis& axis, int rank, int end, int tile) {
  return rank + 1 < end ? axis.shift[rank + 1] : axis.shift[rank] + tile;
}

__device__ __forceinline__ WeightScope weight_scope(const WeightParams& p) {
  WeightScope at;
  int rest = blockIdx.x;
  const int part_w = rest % p.w.parts;
  rest /= p.w.parts;
  const int part_h = rest % p.h.parts;
  rest /= p.h.parts;
  at.octet_block = rest % p.octet_blocks;
  rest /= p.octet_blocks;
  at.row_block = rest % p.row_blocks;
  rest /= p.row_blocks;
  at.group = rest % p.groups;
  at.piece = rest / p.groups;
  at.first_h = part_h * p.h.part;
  at.first_w = part_w * p.w.part;
  at.taps_h = min(p.h.part, p.h.taps - at.first_h);
  at.taps_w = min(p.w.part, p.w.taps - at.first_w);
  at.patch_h = p.h.shift[at.first_h + at.taps_h - 1] + p.tile_h;
  at.patch_w = p.w.shift[at.first_w + at.taps_w - 1] + p.tile_w;
  at.runs = at.patch_w;
  at.first_column = 0;
  if (p.y_mode == kPixelTwins) {
    int low = INT32_MAX, high = INT32_MIN;
    for (int i = at.first_w; i < at.first_w + at.taps_w; ++i) {
      low = min(low, int{p.w.offset[i]});
      high = max(high, p.w.offset[i] + (p.tile_w - 1) * p.w.stride);
    }
    at.first_column = low & ~1;
    at.runs = ((high - at.first_column) >> 1) + 1;
  }
  at.y_entries = p.tile_n * at.patch_h * at.runs;
  at.x_entries = p.x_mode == kPixelTwins ? p.pixels / 2 : p.pixels;
  at.runs_magic = magic_of(at.runs);
  at.patch_h_magic = magic_of(at.patch_h);
  at.x_magic = magic_of(at.x_entries);
  at.y_magic = magic_of(at.y_entries);
  at.units = at.taps_h * at.taps_w * p.octets;
  const int64_t tiles = int64_t{p.tiles_n} * p.tiles_h * p.tiles_w;
  at.begin = static_cast<int>(tiles * at.piece / p.split);
  at.end = static_cast<int>(tiles * (at.piece + 1) / p.split);
  return at;
}

// Image, row and column of a pixel inside its K tile.
__device__ __forceinline__ TileOrigin pixel_in_tile(const WeightParams& p, int pixel) {
  const int row = divide(pixel, p.tile_w_magic);
  const int image = divide(row, p.tile_h_magic);
  return {image, row - image * p.tile_h, pixel - row * p.tile_w};
}

// Everything that lasts for the block. Ends with a barrier.
__device__ __forceinline__ void build_weight_tables(const WeightParams& p, const WeightScope& at,
                                                    const WeightTables& tables, int octet_bytes) {
  const int end_h = at.first_h + at.taps_h, end_w = at.first_w + at.taps_w;
  const bool twins = p.y_mode == kPixelTwins;
  for (int i = at.first_h + threadIdx.x; i < end_h; i += blockDim.x)
    for (int r = p.h.shift[i]; r < rows_after(p.h, i, end_h, p.tile_h); ++r)
      tables.rows[r] = p.h.offset[i] + (r - p.h.shift[i]) * p.h.stride;
  for (int i = threadIdx.x; i < at.runs; i += blockDim.x) {
    if (twins) tables.runs[i] = at.first_column + 2 * i;
    tables.run_rows[i] = 0xffffffffu;
  }
  __syncthreads();
  for (int i = at.first_w + threadIdx.x; i < end_w; i += blockDim.x)
    for (int c = p.w.shift[i]; c < rows_after(p.w, i, end_w, p.tile_w); ++c) {
      const int column = p.w.offset[i] + (c - p.w.shift[i]) * p.w.stride;
      if (twins) {
        const int from = column - at.first_column;
        reinterpret_cast<uint16_t*>(tables.run_rows)[from] = static_cast<uint16_t>(c);
      } else {
        tables.runs[c] = column;
        tables.run_rows[c] = 0xffff0000u | c;
      }
    }
  for (int i = threadIdx.x; i < p.units; i += blockDim.x) {
    const int tap = i / p.octets, octet = i - tap * p.octets, h = tap / at.taps_w;
    const int shift = i < at.units ? p.h.shift[at.first_h + h] * at.patch_w +
                                         p.w.shift[at.first_w + tap - h * at.taps_w]
                                   : 0;
    tables.shifts[i] = shift;
    tables.units[i] = i < at.units ? shift * 16 + octet * octet_bytes : 0;
  }
  for (int i = threadIdx.x; i < p.pixels; i += blockDim.x) {
    const TileOrigin in = pixel_in_tile(p, i);
    tables.bases[i] =
        in.n < p.tile_n ? ((in.n * at.patch_h + in.h) * at.patch_w + in.w) * 16 : 0;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < at.y_entries; i += blockDim.x) {
    const int row = divide(i, at.runs_magic);
    const uint32_t columns = tables.run_rows[i - row * at.runs];
    const uint32_t first = columns & 0xffff, second = columns >> 16;
    tables.y_rows[i] = (first == 0xffff ? first : row * at.patch_w + first) |
                       (second == 0xffff ? second : row * at.patch_w + second) << 16;
  }
  __syncthreads();
}

// Where the pixels of a K tile come from: element offset of channel 0, or -1 for zeros.
__device__ __forceinline__ void build_weight_sources(const WeightParams& p, const WeightScope& at,
                                                     const WeightTables& tables, int tile) {
  const TileOrigin o = tile_origin(p, tile);
  int* const x_sources = tables.x_sources + (tile & 1) * p.pixels;
  int* const y_sources = tables.y_sources + (tile & 1) * p.y_entries;
  const bool twins = p.x_mode == kPixelTwins;
  for (int i = threadIdx.x; i < at.x_entries; i += blockDim.x) {
    const TileOrigin in = pixel_in_tile(p, twins ? 2 * i : i);
    const int n = o.n + in.n, h = o.h + in.h, w = o.w + in.w;
    const bool inside =
        in.n < p.tile_n && n < p.batch && h < p.h.x_extent && w < p.w.x_extent;
    x_sources[i] = inside ? n * p.x_stride[0] + h * p.x_stride[2] + w * p.x_stride[3] : -1;
  }
  for (int i = threadIdx.x; i < at.y_entries; i += blockDim.x) {
    const int row = divide(i, at.runs_magic);
    const int image = divide(row, at.patch_h_magic);
    const int n = o.n + image;
    const int h = o.h * p.h.stride + tables.rows[row - image * at.patch_h];
    const int w = o.w * p.w.stride + tables.runs[i - row * at.runs];
    const bool inside = n < p.batch && h >= 0 && h < p.h.y_extent && w >= 0 && w < p.w.y_extent;
    y_sources[i] = inside ? n * p.y_stride[0] + h * p.y_stride[2] + w * p.y_stride[3] : -1;
  }
}

}  // namespace convt2d::cuda::igemm
