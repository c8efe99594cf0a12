// What multiplies weft's K tiles: x from registers, dY from rows of channels; and the same with care.
#pragma once

#include "cuda/device/barrier.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/hopper/hopper_weight_store.cuh"
#include "cuda/weft/weft_config.h"

namespace convt2d::cuda::weft {

using hopper::TileStart;
using hopper::WeightCell;
using hopper::WeightCells;
using hopper::WeightParams;
using hopper::WeightScope;
using hopper::WeightSums;
using hopper::WeightTap;

// Named barriers: all, who agree whether the sums are good; who multiply; a group of them.
enum { kVerdict = 1, kAllConsumers = 2, kGroup0 = 3 };

// Bytes from the start of a stage to x of a pixel and a channel, of which a turned row has 64: eight of pixels, or of
// channels, that start there lie together.
__device__ __forceinline__ uint32_t x_place(const Params& p, int pixel, int channel) {
  if (p.direct) {
    const int row = p.weight.tile_w * 2, h = pixel / p.weight.tile_w;
    const uint32_t at =
        (h * p.weight.x_blocks * kCellChannels + channel) * row + (pixel - h * p.weight.tile_w) * 2;
    return at ^ (at >> 3 & row - 16 & 0x70);
  }
  const uint32_t at =
      (channel / kCellChannels * kTilePixels + pixel) * kRowBytes + channel % kCellChannels * 2;
  return at ^ (at >> 3 & 0x70);
}

// Multiplies all of a block's K tiles. The other warpgroups multiply while one fetches.
template <class T, int ROW>
__device__ __forceinline__ void multiply_tiles(const Params& p, const WeightScope& at,
                                               const WeightCells* cells, WeightSums<ROW>& sum,
                                               StageRing& ring) {
  constexpr WeightTile tile = kWeightTiles[ROW];
  // Of descriptors, whose other half is the same for all, the half that has an address; of stage address 0.
  uint32_t y[tile.instructions];
#pragma unroll
  for (int i = 0; i < tile.instructions; ++i) {
    const WeightCells& mine = cells[hopper::my_instruction<ROW>(i)];
    y[i] = static_cast<uint32_t>(operand(turned_layout(kRowBytes, mine.apart),
                                         p.weight.x_blocks * kTilePixels * kRowBytes + mine.at));
  }
  const uint64_t layout = turned_layout(kRowBytes, 0) & ~uint64_t{0xffffffff};
  // What a lane shows ldmatrix: a row of eight channels of its warp, or of eight pixels.
  const int lane = threadIdx.x % 32, eight = threadIdx.x % 128 / 32 * 16 + lane / 8 % 2 * 8;
  const int channel = cells[hopper::my_instruction<ROW>(0)].x_block * kCellChannels + eight;
  uint32_t x[kTileSteps];
#pragma unroll
  for (int step = 0; step < kTileSteps; ++step) {
    const int pixel = step * hopper::kStepPixels + lane / 16 * 8;
    x[step] =
        p.direct ? x_place(p, pixel, channel + lane % 8) : x_place(p, pixel + lane % 8, channel);
  }
  for (int k = at.begin; k < at.end; ++k, ring.advance()) {
    barrier_wait(ring.full(), ring.parity);
    uint32_t word[kTileSteps][4];
    if (p.direct) {
#pragma unroll
      for (int step = 0; step < kTileSteps; ++step) ldmatrix_x4(word[step], ring.stage() + x[step]);
    } else {
#pragma unroll
      for (int step = 0; step < kTileSteps; ++step)
        ldmatrix_x4_turned(word[step], ring.stage() + x[step]);
    }
    const uint32_t stage = ring.stage() >> 4;
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kTileSteps; ++step)
#pragma unroll
      for (int i = 0; i < tile.instructions; ++i)
        WgmmaTurned<T, tile.width>::add(sum[i], word[step],
                                        layout | (y[i] + stage + p.weight.step[step]));
    wgmma_commit();
    wgmma_wait<0>();
    __syncwarp();
    if (lane == 0) barrier_arrive(ring.empty());
  }
#pragma unroll
  for (int i = 0; i < tile.instructions; ++i) finished(sum[i]);
}

template <class T>
__device__ __forceinline__ float read_number(uint32_t at) {
  const unsigned short bits = load_shared<unsigned short>(at);
  return Numeric<T>::widen(*reinterpret_cast<const T*>(&bits));
}

// The same on plain multiply-adds, where every product is of two pixels that exist. Slow, and rare: somewhere is a NaN or an
// infinity.
template <class T, int ROW>
__device__ __forceinline__ void multiply_tiles_with_care(const Params& params,
                                                         const WeightScope& at,
                                                         const WeightCells* cells,
                                                         WeightSums<ROW>& sum, StageRing& ring) {
  const WeightParams& p = params.weight;
  const int g = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const auto inside = [](int at, int extent) {
    return static_cast<unsigned>(at) < static_cast<unsigned>(extent);
  };
  clear(sum);
  TileStart start(p, at.begin);
  for (int k = at.begin; k < at.end; ++k, start.advance(p), ring.advance()) {
    barrier_wait(ring.full(), ring.parity);
    const uint32_t stage = ring.stage(), planes = stage + p.x_blocks * kTilePixels * kRowBytes;
#pragma unroll 1
    for (int pixel = 0; pixel < hopper::tile_pixels(p); ++pixel) {
      const int row = pixel / p.tile_w, column = pixel - row * p.tile_w;
      if (start.h + row >= p.x_h || start.w + column >= p.x_w) continue;
      const int patch = row * p.patch_w + column;
      hopper::visit_cells<ROW>(p, at, cells, sum, [&](const WeightCell& cell, float* sums) {
        const WeightTap& tap = p.tap[at.first_tap + cell.tap];
        const int shift_h = tap.shift / p.patch_w, shift_w = tap.shift % p.patch_w;
        if (!inside((start.h + row + shift_h) * p.stride_h + tap.h, p.y_h) ||
            !inside((start.w + column + shift_w) * p.stride_w + tap.w, p.y_w))
          return;
        const uint32_t y = planes + cell.at + patch * kRowBytes;
        float rows[2];
        for (int i = 0; i < 2; ++i)
          rows[i] = read_number<T>(
              stage + x_place(params, pixel, cell.x_block * kCellChannels + g + 8 * i));
#pragma unroll
        for (int i = 0; i < kCellChannels / 8; ++i) {
          float pair[2];
          hopper::read_pair<T>(y, 8 * i + 2 * t, pair);
#pragma unroll
          for (int j = 0; j < 4; ++j)
            sums[4 * i + j] = fmaf(rows[j / 2], pair[j % 2], sums[4 * i + j]);
        }
      });
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(ring.empty());
  }
  barrier_among(kAllConsumers,
                hopper::weight_consumers(kWeightTiles[ROW]));  // all are done with the stages
}

}  // namespace convt2d::cuda::weft
