// What becomes of weft's sums: through shared memory, where channels find their order again, to dW or to partial sums.
#pragma once

#include "cuda/hopper/hopper_weight_store.cuh"
#include "cuda/weft/weft_config.h"

namespace convt2d::cuda::weft {

using hopper::WeightCell;
using hopper::WeightCells;
using hopper::WeightParams;
using hopper::WeightScope;
using hopper::WeightSums;
using hopper::WeightTap;

// A warpgroup's sums to its tile in shared memory, as rows of cells.
template <int ROW>
__device__ __forceinline__ void lay_out(const Params& p, WeightSums<ROW>& sum, uint32_t to) {
  constexpr WeightTile tile = kWeightTiles[ROW];
  constexpr int kPitch = laid_pitch(tile);
  const int g = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  uint32_t row[2];
#pragma unroll
  for (int half = 0; half < 2; ++half)
    row[half] = to + channel_at(g + 8 * half, p.side[kX].residues) * kPitch;
  // Of two neighbouring columns of a cell, eight cells' worth on.
  const int apart = p.side[kY].residues * 4;
#pragma unroll
  for (int eight = 0; eight < kCellChannels / 8; ++eight) {
    const uint32_t column = channel_at(8 * eight + 2 * t, p.side[kY].residues) * 4;
#pragma unroll
    for (int i = 0; i < tile.instructions; ++i)
#pragma unroll
      for (int c = 0; c < tile.width / kCellChannels; ++c) {
        const int cell = i * (tile.width / kCellChannels) + c;
        const float* const sums = sum[i] + c * (kCellChannels / 2) + eight * 4;
#pragma unroll
        for (int j = 0; j < 4; ++j)
          store_shared_4(row[j / 2] + column + j % 2 * apart + cell * kCellPitch * 4,
                         __float_as_uint(sums[j]));
      }
  }
}

// A cell of the warpgroup.
template <int ROW>
__device__ __forceinline__ WeightCell group_cell(const WeightParams& p, const WeightCells* cells,
                                                 int cell) {
  constexpr int kCells = kWeightTiles[ROW].width / kCellChannels;
  return hopper::cell_of(p, cells[hopper::my_instruction<ROW>(cell / kCells)], cell % kCells);
}

// To this piece's partial sums: sixteen lanes take a row of a cell.
template <int ROW>
__device__ __forceinline__ void store_partials(const Params& params, const WeightScope& at,
                                               const WeightCells* cells, uint32_t from) {
  constexpr WeightTile tile = kWeightTiles[ROW];
  constexpr int kRows = 128 / 16;  // at once
  const WeightParams& p = params.weight;
  const int first = threadIdx.x % 128 / 16, lane = threadIdx.x % 16;
  const int64_t dense = int64_t{p.groups} * p.rows * p.columns;
  float* const partials = p.partials + int64_t{at.piece} * p.piece_floats;
#pragma unroll 1
  for (int c = 0; c < cells_of_group(tile); ++c) {
    const WeightCell cell = group_cell<ROW>(p, cells, c);
    const int column = (at.column_block * p.y_blocks + cell.y_block) * kCellChannels + 4 * lane;
    if (cell.tap >= at.taps || column >= p.columns) continue;
    const WeightTap& tap = p.tap[at.first_tap + cell.tap];
    const int row = (at.row_block * p.x_blocks + cell.x_block) * kCellChannels;
    float* to = partials + (tap.kernel_h * p.kernel_w + tap.kernel_w) * dense +
                (int64_t{at.group} * p.rows + row + first) * p.columns + column;
    const uint32_t sums = from + (c * kCellPitch + 4 * lane) * 4;
#pragma unroll 4
    for (int r = first; r < kCellChannels; r += kRows, to += int64_t{kRows} * p.columns) {
      if (row + r >= p.rows) break;
      uint32_t word[4];
      load_shared_16(sums + r * laid_pitch(tile), word);
      if (params.quads) {
        store_words(to, word[0], word[1], word[2], word[3]);
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (column + i < p.columns) to[i] = __uint_as_float(word[i]);
      }
    }
  }
}

// To dW: neighbouring lanes take the warpgroup's cells of a channel, whose taps may be neighbours.
template <class T, int ROW>
__device__ __forceinline__ void store_weights(const Params& params, const WeightScope& at,
                                              const WeightCells* cells, uint32_t from) {
  constexpr WeightTile tile = kWeightTiles[ROW];
  constexpr int kCells = cells_of_group(tile), kNumbers = kCells * kCellChannels;
  const WeightParams& p = params.weight;
  const int32_t* const stride = p.weight_stride;
  // All cells of a warpgroup are of one block of input channels: an instruction's are, and instructions' are if they are
  // not, which go on below.
#pragma unroll 1
  for (int number = threadIdx.x % 128; number < kNumbers; number += 128) {
    const int channel = number / kCells, c = number - channel * kCells;
    const WeightCell cell = group_cell<ROW>(p, cells, c);
    const int column = (at.column_block * p.y_blocks + cell.y_block) * kCellChannels + channel;
    if (cell.tap >= at.taps || column >= p.columns) continue;
    const WeightTap& tap = p.tap[at.first_tap + cell.tap];
    const int row = (at.row_block * p.x_blocks + cell.x_block) * kCellChannels;
    const int rows = min(kCellChannels, p.rows - row);
    T* to = static_cast<T*>(p.weight) + (int64_t{at.group} * p.rows + row) * stride[0] +
            int64_t{column} * stride[1] + tap.kernel_h * stride[2] + tap.kernel_w * stride[3];
    uint32_t sums = from + (c * kCellPitch + channel) * 4;
#pragma unroll 4
    for (int r = 0; r < rows; ++r, to += stride[0], sums += laid_pitch(tile))
      store(to, load_shared<float>(sums));
  }
}

}  // namespace convt2d::cuda::weft
