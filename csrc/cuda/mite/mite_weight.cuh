// mite, grad_weight; see mite_config.h.
#pragma once

#include "cuda/device/numeric.cuh"
#include "cuda/device/successor.cuh"
#include "cuda/mite/mite_config.h"
#include "cuda/mite/mite_fill.cuh"

namespace convt2d::cuda::mite {

#ifdef CONVT2D_EMULATED
extern float4 shared[];
#else
extern __shared__ float4 shared[];
#endif

// The first pixel of a block's tile.
struct WeightTile {
  int group, piece, n, first_h, first_w;
};

__device__ __forceinline__ WeightTile weight_tile(const WeightParams& p) {
  WeightTile tile;
  tile.group = p.by_pieces.quotient(blockIdx.x);
  tile.piece = blockIdx.x - tile.group * p.pieces;
  const int tiles_h = p.by_tiles_w.quotient(tile.piece);
  tile.first_w = (tile.piece - tiles_h * int(p.by_tiles_w.divisor)) * p.tile_w;
  tile.n = p.by_tiles_h.quotient(tiles_h);
  tile.first_h = (tiles_h - tile.n * int(p.by_tiles_h.divisor)) * p.tile_h;
  return tile;
}

// Some threads bring x while the others bring dY.
template <class T>
__device__ __forceinline__ void fill(const WeightParams& p, const WeightTile& tile, float* floats) {
  const bool is_x = threadIdx.x < p.x_threads;
  const int row = is_x ? tile.first_h : tile.first_h * p.step_h + p.first_h,
            column = is_x ? tile.first_w : tile.first_w * p.step_w + p.first_w;
  fill_patch<kWeightFill, T>(p.patch[is_x ? 0 : 1], tile.n, tile.group, row, column,
                             is_x ? threadIdx.x : threadIdx.x - p.x_threads,
                             is_x ? p.x_threads : kWeightThreads - p.x_threads, floats);
}

// What one warp adds up: places of its factors beside those of a pixel.
template <int CHANNELS, int TAPS>
struct Item {
  int x[CHANNELS], y[TAPS];
  int row, column[TAPS];  // of dY, what a pixel's taps are beside its first
};

template <int CHANNELS, int TAPS>
__device__ __forceinline__ Item<CHANNELS, TAPS> item_at(const WeightParams& p, int number) {
  const int taps = p.by_channel_blocks.quotient(number);
  const int channel = (number - taps * int(p.by_channel_blocks.divisor)) * CHANNELS;
  const int row = p.by_tap_blocks.quotient(taps);
  const int tap = (taps - row * int(p.by_tap_blocks.divisor)) * TAPS;
  const int co = p.by_kernel_h.quotient(row), tap_h = row - co * p.kernel_h;
  Item<CHANNELS, TAPS> item;
  item.row = tap_h * p.dilation_h;
  // What does not exist is added up too, as something that does, and left there.
#pragma unroll
  for (int i = 0; i < CHANNELS; ++i)
    item.x[i] = p.patch[0].at + min(channel + i, p.group_in - 1) * p.patch[0].plane;
#pragma unroll
  for (int i = 0; i < TAPS; ++i) {
    item.column[i] = min(tap + i, p.kernel_w - 1) * p.dilation_w;
    item.y[i] =
        p.patch[1].at + co * p.patch[1].plane + item.row * p.patch[1].pitch + item.column[i];
  }
  return item;
}

// Every `step`-th pixel of the tile. `GUARDED`: only products that exist.
template <bool GUARDED, int CHANNELS, int TAPS>
__device__ __forceinline__ void add_up(const WeightParams& p, const WeightTile& tile,
                                       const float* floats, const Item<CHANNELS, TAPS>& item,
                                       int first, int step, float (&sum)[CHANNELS * TAPS]) {
  const int pixels = min(p.tile_h, p.patch[0].rows - tile.first_h) * p.tile_w;
#pragma unroll
  for (int i = 0; i < CHANNELS * TAPS; ++i) sum[i] = 0;
#pragma unroll 1
  for (int pixel = first; pixel < pixels; pixel += step) {
    const int row = p.by_tile_w.quotient(pixel), column = pixel - row * p.tile_w;
    const int place = row * p.step_h * p.patch[1].pitch + column * p.step_w;
    float x[CHANNELS], y[TAPS];
#pragma unroll
    for (int i = 0; i < CHANNELS; ++i) x[i] = floats[item.x[i] + pixel];
#pragma unroll
    for (int i = 0; i < TAPS; ++i) y[i] = floats[item.y[i] + place];
    const Patch& of_y = p.patch[1];
    if (GUARDED &&
        (tile.first_w + column >= p.patch[0].columns ||
         unsigned((tile.first_h + row) * p.step_h + p.first_h + item.row) >= unsigned(of_y.rows)))
      continue;
#pragma unroll
    for (int i = 0; i < TAPS; ++i) {
      if (GUARDED && unsigned((tile.first_w + column) * p.step_w + p.first_w + item.column[i]) >=
                         unsigned(of_y.columns))
        continue;
#pragma unroll
      for (int k = 0; k < CHANNELS; ++k) sum[k * TAPS + i] += x[k] * y[i];
    }
  }
}

// Sums over the lanes: as long as a lane has several, it gives half of them away. In the end lane l has that of number
// l / (32 / COUNT).
template <int LEFT, int COUNT>
__device__ __forceinline__ void add_lanes(float (&sum)[COUNT], int mask) {
  if constexpr (LEFT > 1) {
    const bool upper = threadIdx.x & mask;
#pragma unroll
    for (int i = 0; i < LEFT / 2; ++i) {
      const float given = upper ? sum[i] : sum[i + LEFT / 2];
      const float kept = upper ? sum[i + LEFT / 2] : sum[i];
      sum[i] = kept + __shfl_xor_sync(~0u, given, mask);
    }
    add_lanes<LEFT / 2>(sum, mask / 2);
  } else {
#pragma unroll 1
    for (; mask > 0; mask /= 2) sum[0] += __shfl_xor_sync(~0u, sum[0], mask);
  }
}

template <class T, int CHANNELS, int TAPS>
__global__ void __launch_bounds__(kWeightThreads, kWeightBlocks)
    convt2d_mite_grad_weight_kernel(const __grid_constant__ WeightParams p) {
  constexpr int COUNT = CHANNELS * TAPS;
  float* const floats = reinterpret_cast<float*>(shared);
  const WeightTile tile = weight_tile(p);
  fill<T>(p, tile, floats);
  let_successor_start();
  __syncthreads();

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll 1
  for (int work = warp; work < p.items * p.parts; work += kWeightWarps) {
    const int part = p.by_items.quotient(work);
    const Item<CHANNELS, TAPS> item = item_at<CHANNELS, TAPS>(p, work - part * p.items);
    float sum[COUNT];
    add_up<false>(p, tile, floats, item, part * 32 + lane, p.parts * 32, sum);
    bool nan = false;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) nan |= sum[i] != sum[i];
    // Zeros stand for what does not exist, and zero times infinity is NaN.
    if (nan) add_up<true>(p, tile, floats, item, part * 32 + lane, p.parts * 32, sum);
    __syncwarp();
    add_lanes<COUNT>(sum, 16);
    if (lane % (32 / COUNT) == 0) floats[p.sums_at + work * COUNT + lane / (32 / COUNT)] = sum[0];
  }
  __syncthreads();

#pragma unroll 1
  for (int element = threadIdx.x; element < p.elements; element += kWeightThreads) {
    int rest = p.by_group_out.quotient(element);
    const int co = element - rest * p.group_out;
    const int tap = p.by_group_in.quotient(rest), ci = rest - tap * p.group_in;
    const int tap_h = p.by_kernel_w.quotient(tap), tap_w = tap - tap_h * p.kernel_w;
    const int item = ((co * p.kernel_h + tap_h) * int(p.by_tap_blocks.divisor) + tap_w / TAPS) *
                         int(p.by_channel_blocks.divisor) +
                     ci / CHANNELS;
    const float* from = floats + p.sums_at + item * COUNT + ci % CHANNELS * TAPS + tap_w % TAPS;
    float sum = 0;
#pragma unroll 1
    for (int part = 0; part < p.parts; ++part) sum += from[part * p.items * COUNT];
    const int channel = tile.group * p.group_in + ci;
    if (p.partials) {
      p.partials[int64_t(tile.piece) * p.piece_floats +
                 (tap * p.in_channels + channel) * p.group_out + co] = sum;
    } else {
      store(static_cast<T*>(p.weight) + channel * p.stride[0] + co * p.stride[1] +
                tap_h * p.stride[2] + tap_w * p.stride[3],
            sum);
    }
  }
}

}  // namespace convt2d::cuda::mite
