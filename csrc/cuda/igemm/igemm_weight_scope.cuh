// What a block of the grad_weight kernel knows about its work, and the tables it keeps in shared memory.
#pragma once

#include "cuda/device/digits.cuh"
#include "cuda/gather_device.cuh"
#include "cuda/igemm/igemm_weight_config.h"

namespace convt2d::cuda::igemm {

// The taps, channels and pixels a block works on; in shared memory, since registers are scarce.
struct WeightScope {
  int group, row_block, octet_block, piece;
  int first_h, taps_h, first_w, taps_w;  // ranks of its taps
  int patch_h, patch_w;
  int row_loads, y_loads, x_loads;
  uint32_t x_magic, y_magic;         // of the loads, see divide()
  int first_column;                  // dY column of the first load, from the tile's first
  int low_h, high_h, low_w, high_w;  // dY pixels of a tile, ditto
  int units;
  int begin, end;  // K tiles
};
static_assert(sizeof(WeightScope) <= kScopeBytes);

// The tables, as pointers into shared memory; see WeightMap.
struct WeightTables {
  int *rows, *columns;
  uint16_t* column_pixels;
  int *units, *shifts, *targets, *lefts, *bases;
  unsigned char *x_valid, *y_valid;
  WeightLoad *x_loads, *y_loads;
};

__device__ __forceinline__ WeightTables weight_tables(unsigned char* smem, const WeightMap& map,
                                                      const WeightParams& p) {
  const auto ints = [&](int offset) { return reinterpret_cast<int*>(smem + offset); };
  const auto loads = [&](int offset) { return reinterpret_cast<WeightLoad*>(smem + offset); };
  return {ints(map.rows),
          ints(map.columns),
          reinterpret_cast<uint16_t*>(smem + map.column_pixels),
          ints(map.units),
          ints(map.shifts),
          ints(map.targets),
          ints(map.lefts),
          ints(map.bases),
          smem + map.valid,
          smem + map.valid + p.pixels,
          loads(map.x_loads),
          loads(map.y_loads)};
}

// The patch row after those of one tap.
__device__ __forceinline__ int rows_after(const WeightAxis& axis, int rank, int end, int tile) {
  return rank + 1 < end ? axis.shift[rank + 1] : axis.shift[rank] + tile;
}

// The first and last dY position that taps meet from a tile of x positions.
__device__ __forceinline__ void find_reach(const WeightAxis& axis, int first, int taps, int tile,
                                           int& low, int& high) {
  low = high = axis.offset[first];
  for (int i = first; i < first + taps; ++i) {
    low = min(low, int{axis.offset[i]});
    high = max(high, int{axis.offset[i]});
  }
  high += (tile - 1) * axis.stride;
}

__device__ __forceinline__ WeightScope weight_scope(const WeightParams& p) {
  WeightScope at;
  Digits number{int(blockIdx.x)};
  const int part_w = number.next(p.w.parts), part_h = number.next(p.h.parts);
  at.octet_block = number.next(p.octet_blocks);
  at.row_block = number.next(p.row_blocks);
  at.group = number.next(p.groups);
  at.piece = number.rest;
  at.first_h = part_h * p.h.part;
  at.first_w = part_w * p.w.part;
  at.taps_h = min(p.h.part, p.h.taps - at.first_h);
  at.taps_w = min(p.w.part, p.w.taps - at.first_w);
  at.patch_h = p.h.shift[at.first_h + at.taps_h - 1] + p.tile_h;
  at.patch_w = p.w.shift[at.first_w + at.taps_w - 1] + p.tile_w;
  find_reach(p.h, at.first_h, at.taps_h, p.tile_h, at.low_h, at.high_h);
  find_reach(p.w, at.first_w, at.taps_w, p.tile_w, at.low_w, at.high_w);
  const int run = p.y_run;
  at.first_column = at.low_w & -run;
  at.row_loads = run == 1 ? at.patch_w : (at.high_w - at.first_column) / run + 1;
  if (p.y_mode == kByPlanes) at.patch_w = run * at.row_loads;
  at.y_loads = p.tile_n * at.patch_h * at.row_loads;
  at.x_loads = p.pixels / p.x_run;
  at.y_magic = magic_of(at.y_loads);
  at.x_magic = magic_of(at.x_loads);
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

// dY rows and columns of the patch, from those of a tile's first pixel.
__device__ __forceinline__ void build_patch(const WeightParams& p, const WeightScope& at,
                                            const WeightTables& tables) {
  const int end_h = at.first_h + at.taps_h, end_w = at.first_w + at.taps_w, run = p.y_run;
  for (int i = at.first_h + threadIdx.x; i < end_h; i += blockDim.x)
    for (int r = p.h.shift[i]; r < rows_after(p.h, i, end_h, p.tile_h); ++r)
      tables.rows[r] = p.h.offset[i] + (r - p.h.shift[i]) * p.h.stride;
  for (int i = threadIdx.x; i < at.row_loads; i += blockDim.x) {
    if (run > 1) tables.columns[i] = at.first_column + run * i;  // else below
    for (int j = 0; j < 4; ++j) tables.column_pixels[4 * i + j] = static_cast<uint16_t>(kNoPixel);
  }
  __syncthreads();
  for (int i = at.first_w + threadIdx.x; i < end_w; i += blockDim.x)
    for (int c = p.w.shift[i]; c < rows_after(p.w, i, end_w, p.tile_w); ++c) {
      const int column = p.w.offset[i] + (c - p.w.shift[i]) * p.w.stride;
      const int from = column - at.first_column;
      if (run == 1) tables.columns[c] = column;
      if (p.y_mode == kByPlanes) continue;
      tables.column_pixels[run == 1 ? 4 * c : from / run * 4 + from % run] =
          static_cast<uint16_t>(c);
    }
}

// Everything that lasts for the block. Ends with a barrier.
__device__ __forceinline__ void build_weight_tables(const WeightParams& p, const WeightScope& at,
                                                    const WeightTables& tables, int octet_bytes,
                                                    int element_bytes) {
  build_patch(p, at, tables);
  for (int i = threadIdx.x; i < p.units; i += blockDim.x) {
    tables.shifts[i] = tables.units[i] = tables.targets[i] = tables.lefts[i] = 0;
    if (i >= at.units) continue;
    const int tap = i / p.octets, octet = i - tap * p.octets;
    const int h = at.first_h + tap / at.taps_w, w = at.first_w + tap % at.taps_w;
    const int shift_w = p.y_mode == kByPlanes ? p.w.offset[w] - at.first_column : p.w.shift[w];
    const int shift = p.h.shift[h] * at.patch_w + shift_w;
    const int column = (at.octet_block * p.octets + octet) * 8;
    tables.shifts[i] = shift;
    tables.units[i] = shift * pixel_bytes(p.y_mode, element_bytes) + octet * octet_bytes;
    tables.lefts[i] = p.columns - column;
    tables.targets[i] =
        p.partials ? (p.h.tap[h] * p.w.taps + p.w.tap[w]) * p.groups * p.rows * p.columns + column
                   : column * p.weight_stride[1] + p.h.tap[h] * p.weight_stride[2] +
                         p.w.tap[w] * p.weight_stride[3];
  }
  // Pixels beyond the tile, whose x is zero, repeat its last eight.
  const int used = p.tile_n * p.tile_h * p.tile_w, last = max(used - 8, 0);
  const int step_w = p.y_mode == kByPlanes ? p.w.stride : 1;
  for (int i = threadIdx.x; i < p.pixels; i += blockDim.x) {
    const TileOrigin in = pixel_in_tile(p, i < used ? i : min(last + i % 8, used - 1));
    tables.bases[i] = ((in.n * at.patch_h + in.h) * at.patch_w + in.w * step_w) *
                      pixel_bytes(p.y_mode, element_bytes);
  }
  for (int i = threadIdx.x, run = p.x_run; i < at.x_loads; i += blockDim.x) {
    const TileOrigin in = pixel_in_tile(p, i * run);
    const auto pixel = [&](int j) {
      return j < run ? static_cast<uint32_t>(i * run + j) : kNoPixel;
    };
    const bool parcel = p.x_mode == kByParcels;
    tables.x_loads[i] = {
        in.n * p.x_stride[0] + in.h * p.x_stride[2] + in.w * p.x_stride[3], in.h << 16 | in.w,
        parcel ? pixel(0) | pixel(1) << 16 : i * run * pixel_bytes(p.x_mode, element_bytes),
        pixel(2) | pixel(3) << 16};
  }
  __syncthreads();
  for (int i = threadIdx.x; i < at.y_loads; i += blockDim.x) {
    const int row = i / at.row_loads, load = i - row * at.row_loads;
    const int image = row / at.patch_h, h = tables.rows[row - image * at.patch_h];
    const int column = tables.columns[load], first = row * at.patch_w;
    const auto pixel = [&](int j) {
      const uint32_t one = tables.column_pixels[4 * load + j];
      return one == kNoPixel ? one : first + one;
    };
    const bool parcel = p.y_mode == kByParcels;
    tables.y_loads[i] = {image * p.y_stride[0] + h * p.y_stride[2] + column * p.y_stride[3],
                         static_cast<int32_t>(static_cast<uint32_t>(h) << 16) | (column & 0xffff),
                         parcel ? pixel(0) | pixel(1) << 16
                                : (first + load * p.y_run) * pixel_bytes(p.y_mode, element_bytes),
                         pixel(2) | pixel(3) << 16};
  }
  __syncthreads();
}

}  // namespace convt2d::cuda::igemm
