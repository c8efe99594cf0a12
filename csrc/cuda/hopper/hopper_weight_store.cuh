// What a block of hopper's grad_weight works on, where its K tiles start, and what becomes of its sums: the NaN rule, and where they go.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/memory.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/hopper/hopper_weight_config.h"

namespace convt2d::cuda::hopper {

// The channels, taps and K tiles of a block.
struct WeightScope {
  int group, row_block, column_block;
  int first_tap, taps;
  int piece, begin, end;
};

// Neighbouring blocks read the same pixels, at about the same time.
__device__ __forceinline__ WeightScope weight_scope(const WeightParams& p) {
  WeightScope at;
  int rest = blockIdx.x;
  at.first_tap = rest % p.units * p.unit_taps;
  rest /= p.units;
  at.column_block = rest % p.column_blocks;
  rest /= p.column_blocks;
  at.row_block = rest % p.row_blocks;
  rest /= p.row_blocks;
  at.group = rest % p.groups;
  at.piece = rest / p.groups;
  at.taps = min(p.unit_taps, p.taps - at.first_tap);
  const int64_t tiles = int64_t{p.tiles_n} * p.tiles_h * p.tiles_w;
  at.begin = static_cast<int>(tiles * at.piece / p.split);
  at.end = static_cast<int>(tiles * (at.piece + 1) / p.split);
  return at;
}

// Where a K tile starts, walked without division.
struct TileStart {
  int n, h, w;

  template <class Params>
  __device__ __forceinline__ TileStart(const Params& p, int tile) {
    const int row = tile / p.tiles_w;
    w = (tile - row * p.tiles_w) * p.tile_w;
    n = row / p.tiles_h;
    h = (row - n * p.tiles_h) * p.tile_h;
    n *= p.tile_n;
  }
  template <class Params>
  __device__ __forceinline__ void advance(const Params& p) {
    w += p.tile_w;
    if (w < p.tiles_w * p.tile_w) return;
    w = 0, h += p.tile_h;
    if (h < p.tiles_h * p.tile_h) return;
    h = 0, n += p.tile_n;
  }
};

// Of a thread: [instruction][column 8 i + 2 t or + 1, row g or g + 8 of the warp's 16], as wgmma has them.
template <int ROW>
using WeightSums = float[kWeightTiles[ROW].instructions][kWeightTiles[ROW].width / 2];

// Number of this warpgroup's instruction in the block.
template <int ROW>
__device__ __forceinline__ int my_instruction(int i) {
  return threadIdx.x / 128 * kWeightTiles[ROW].instructions + i;
}

// A cell of a thread: 64 output channels of a tap, and the thread's 32 sums of it.
struct WeightCell {
  int x_block, tap, y_block;  // tap counts from the block's first
  int at;                     // bytes, see WeightCells
};

__device__ __forceinline__ WeightCell cell_of(const WeightParams& p, const WeightCells& cells,
                                              int c) {
  const int y_block = cells.y_block + c;
  return {cells.x_block, cells.tap + y_block / p.y_blocks, y_block % p.y_blocks,
          cells.at + c * cells.apart};
}

// visit(cell, its first sum) for every cell of the thread whose tap exists. `cells`: of the block's instructions.
template <int ROW, class Visit>
__device__ __forceinline__ void visit_cells(const WeightParams& p, const WeightScope& at,
                                            const WeightCells* cells, WeightSums<ROW>& sum,
                                            Visit&& visit) {
  constexpr WeightTile tile = kWeightTiles[ROW];
#pragma unroll
  for (int i = 0; i < tile.instructions; ++i) {
#pragma unroll
    for (int c = 0; c < tile.width / kCellChannels; ++c) {
      const WeightCell cell = cell_of(p, cells[my_instruction<ROW>(i)], c);
      if (cell.tap < at.taps) visit(cell, sum[i] + c * (kCellChannels / 2));
    }
  }
}

// Zeros from outside of dY are multiplied too, and 0 * inf is NaN.
template <int ROW>
__device__ __forceinline__ bool any_nan(const WeightParams& p, const WeightScope& at,
                                        const WeightCells* cells, WeightSums<ROW>& sum) {
  bool found = false;
  visit_cells<ROW>(p, at, cells, sum, [&](const WeightCell&, float* sums) {
#pragma unroll
    for (int j = 0; j < kCellChannels / 2; ++j) found |= sums[j] != sums[j];
  });
  return found;
}

// A staged pixel's pair of neighbouring channels.
template <class T>
__device__ __forceinline__ void read_pair(uint32_t row, int channel, float (&value)[2]) {
  const uint32_t plain = row + channel * 2, word = load_shared_4(plain ^ (plain >> 3 & 0x70));
  const T* const pair = reinterpret_cast<const T*>(&word);
  value[0] = Numeric<T>::widen(pair[0]), value[1] = Numeric<T>::widen(pair[1]);
}

// Adds a staged K tile that starts at pixel (n, h, w) on plain multiply-adds, where every product is of two pixels
// that exist. Slow, and rare: somewhere is a NaN or an infinity.
template <class T, int ROW>
__device__ __forceinline__ void multiply_valid(const WeightParams& p, const WeightScope& at,
                                               const WeightCells* cells, WeightSums<ROW>& sum,
                                               uint32_t stage, int n, int h, int w) {
  const int g = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const uint32_t planes = stage + p.x_blocks * kTilePixels * kRowBytes;
  const auto inside = [](int at, int extent) {
    return static_cast<unsigned>(at) < static_cast<unsigned>(extent);
  };
#pragma unroll 1
  for (int pixel = 0; pixel < tile_pixels(p); ++pixel) {
    const int row = pixel / p.tile_w, image = row / p.tile_h;
    const int pixel_h = row % p.tile_h, pixel_w = pixel % p.tile_w;
    if (n + image >= p.batch || h + pixel_h >= p.x_h || w + pixel_w >= p.x_w) continue;
    const int patch = (image * p.patch_h + pixel_h) * p.patch_w + pixel_w;
    visit_cells<ROW>(p, at, cells, sum, [&](const WeightCell& cell, float* sums) {
      const WeightTap& tap = p.tap[at.first_tap + cell.tap];
      const int shift_h = tap.shift / p.patch_w, shift_w = tap.shift % p.patch_w;
      if (!inside((h + pixel_h + shift_h) * p.stride_h + tap.h, p.y_h) ||
          !inside((w + pixel_w + shift_w) * p.stride_w + tap.w, p.y_w))
        return;
      const uint32_t x = stage + (cell.x_block * kTilePixels + pixel) * kRowBytes;
      const uint32_t y = planes + cell.at + patch * kRowBytes;
      float pair[2], rows[2];
      for (int i = 0; i < 2; ++i) {
        read_pair<T>(x, (g + 8 * i) & ~1, pair);
        rows[i] = g % 2 ? pair[1] : pair[0];
      }
#pragma unroll
      for (int i = 0; i < kCellChannels / 8; ++i) {
        read_pair<T>(y, 8 * i + 2 * t, pair);
#pragma unroll
        for (int j = 0; j < 4; ++j)
          sums[4 * i + j] = fmaf(rows[j / 2], pair[j % 2], sums[4 * i + j]);
      }
    });
  }
}

// A warpgroup's sums to its tile in shared memory, as rows.
template <int ROW>
__device__ __forceinline__ void lay_out(WeightSums<ROW>& sum, uint32_t to) {
  constexpr WeightTile tile = kWeightTiles[ROW];
  const int g = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  to += g * sum_pitch(tile) + 8 * t;
#pragma unroll
  for (int i = 0; i < tile.instructions; ++i)
#pragma unroll
    for (int j = 0; j < tile.width / 2; j += 2)
      store_shared<2>(to + j / 2 % 2 * 8 * sum_pitch(tile) + (i * tile.width + j / 4 * 8) * 4,
                      {__float_as_uint(sum[i][j]), __float_as_uint(sum[i][j + 1])});
}

// And from there to dW, or to this piece's partial sums: sixteen lanes take a row of a cell. Short code: it runs once,
// and is fetched from memory for that.
template <class T, int ROW>
__device__ __forceinline__ void store_weights(const WeightParams& p, const WeightScope& at,
                                              const WeightCells* cells, uint32_t from) {
  constexpr WeightTile tile = kWeightTiles[ROW];
  constexpr int kCells = tile.width / kCellChannels, kRows = 128 / 16;  // at once
  const int first = threadIdx.x % 128 / 16, lane = threadIdx.x % 16;
  const int32_t* const stride = p.weight_stride;
  const int64_t dense = int64_t{p.groups} * p.rows * p.columns;  // of partial sums
  float* const partials = p.partials + int64_t{at.piece} * p.piece_floats;
#pragma unroll 1
  for (int c = 0; c < tile.instructions * kCells; ++c) {
    const WeightCell cell = cell_of(p, cells[my_instruction<ROW>(c / kCells)], c % kCells);
    const int column = (at.column_block * p.y_blocks + cell.y_block) * kCellChannels + 4 * lane;
    if (cell.tap >= at.taps || column >= p.columns) continue;  // which are a multiple of eight
    const WeightTap& tap = p.tap[at.first_tap + cell.tap];
    const int row = (at.row_block * p.x_blocks + cell.x_block) * kCellChannels;
    const int64_t channel = at.group * p.rows + row;
    const int64_t in_partials =
        (tap.kernel_h * p.kernel_w + tap.kernel_w) * dense + channel * p.columns + column;
    const int64_t in_weight = channel * stride[0] + int64_t{column} * stride[1] +
                              tap.kernel_h * stride[2] + tap.kernel_w * stride[3];
    const uint32_t sums = from + (c * kCellChannels + 4 * lane) * 4;
#pragma unroll 4
    for (int r = first; r < kCellChannels; r += kRows) {
      if (row + r >= p.rows) break;
      uint32_t word[4];
      load_shared_16(sums + r * sum_pitch(tile), word);
      if (p.partials) {
        store_words(partials + in_partials + int64_t{r} * p.columns, word[0], word[1], word[2],
                    word[3]);
        continue;
      }
      T* const to = static_cast<T*>(p.weight) + in_weight + int64_t{r} * stride[0];
      float value[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) value[i] = __uint_as_float(word[i]);
      if (p.weight_quads) {
        store_words(to, pack<T>(value[0], value[1]), pack<T>(value[2], value[3]));
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) store(to + i * stride[1], value[i]);
      }
    }
  }
}

}  // namespace convt2d::cuda::hopper
