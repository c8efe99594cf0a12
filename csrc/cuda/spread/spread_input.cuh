// The kernel of spread's grad_input; spread_input.h draws the tiling.
//
// A panel has a barrier that ends a phase when seven warps have written it, and one when every warp that multiplies has read
// it for the last block of channels; the ring of weights has `full` and `empty` as ever.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/barrier.cuh"
#include "cuda/device/memory.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/device/pair.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/spread/spread_input.h"

namespace convt2d::cuda::spread {

template <class T>
constexpr bool is_word_of_input = sizeof(T) == 4;

// The ring of panels; its barriers are those of all of them.
template <int ROW>
__device__ __forceinline__ StageRing panels_of(const InputParams& p, uint32_t shared) {
  return {shared + kPanelsFullAt, shared + p.panels_at, p.slots,
          tile_pixels(kInputTiles[ROW]) * kLine};
}

__device__ __forceinline__ void bring_columns(const InputParams& p, const CUtensorMap& map,
                                              StageRing ring) {
  const int numbers = line_numbers(p.number_bytes),
            rows = kInputWidth / (p.order == kDealtOut ? dealt_row(p.number_bytes) : 1);
  for (int tile = blockIdx.x; tile < p.tiles; tile += p.walkers)
    for (int block = 0; block < p.column_blocks; ++block)
#pragma unroll 1
      for (int panel = 0; panel < p.panels; ++panel, ring.advance()) {
        barrier_wait(ring.empty(), ring.parity ^ 1);
        barrier_expect(ring.full(), kInputStage);
        if (p.order == kDealtOut) {
          copy_box(ring.stage(), &map, ring.full(), panel * numbers, 0, 0, 0, block * rows);
        } else {
          copy_box(ring.stage(), &map, ring.full(), panel * numbers, block * rows, 0, 0);
        }
      }
}

// Where a pixel's runs start: its first row of dY, number of it, and the element that would be there.
struct Start {
  int row, number, element;
};
__device__ __forceinline__ Start start_of(const InputParams& p, int pixel) {
  if (pixel >= p.pixels) return {-(1 << 30), 0, 0};  // and no kernel row makes it one
  const int n = p.by_plane.quotient(pixel), inside = pixel - n * p.x_h * p.x_w;
  const int h = p.by_row.quotient(inside), w = inside - h * p.x_w;
  const int row = h * p.stride_h - p.pad_h, number = w * p.step - p.lead;
  return {row, number, (n * p.y_h + row) * p.y_row + number};
}

// A lane has 4 bytes of K of a panel: one number or two, each with the kernel row it belongs to.
template <class T, int ROW>
__device__ __forceinline__ void write_panels(const InputParams& p, uint32_t shared) {
  constexpr int kNumbers = 4 / sizeof(T), kPixels = tile_pixels(kInputTiles[ROW]);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 - kConsumers / 32 - 1;
  const T* const source = static_cast<const T*>(p.source);
  StageRing ring = panels_of<ROW>(p, shared);
  for (int tile = blockIdx.x; tile < p.tiles; tile += p.walkers)
#pragma unroll 1
    for (int panel = 0; panel < p.panels; ++panel, ring.advance()) {
      int row[kNumbers], number[kNumbers], element[kNumbers];
#pragma unroll
      for (int i = 0; i < kNumbers; ++i) {
        const int k = (panel * 32 + lane) * kNumbers + i, kh = p.by_kernel_row.quotient(k);
        row[i] = k < p.depth ? kh * p.dilation_h : 1 << 24;
        number[i] = k - kh * p.kernel_row;
        element[i] = kh * p.dilation_h * p.y_row + number[i];
      }
      const uint32_t to = ring.stage() + lane % 4 * 4;
      bool ready = false;
#pragma unroll 1
      for (int first = warp; first < kPixels / 4; first += kFours * kWriters) {
        uint32_t word[kFours][4], high[kFours][4];
#pragma unroll
        for (int e = 0; e < kFours; ++e) {
          const int four = first + e * kWriters;
          const Start mine =
              start_of(p, four < kPixels / 4 ? tile * kPixels + four * 4 + lane % 4 : p.pixels);
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            const Start at{__shfl_sync(0xffffffff, mine.row, j),
                           __shfl_sync(0xffffffff, mine.number, j),
                           __shfl_sync(0xffffffff, mine.element, j)};
            const auto there = [&](int i) {
              return int(unsigned(at.row + row[i]) < unsigned(p.y_h) &&
                         unsigned(at.number + number[i]) < unsigned(p.y_row));
            };
            if (kNumbers == 1 || p.in_words) {
              word[e][j] = load_if<4>(source + (at.element + element[0]), 0, there(0));
              high[e][j] = 0;
            } else {
              word[e][j] = load_if<2>(source + (at.element + element[0]), 0, there(0));
              high[e][j] =
                  load_if<2>(source + (at.element + element[kNumbers - 1]), 0, there(kNumbers - 1));
            }
          }
        }
        if (!ready) barrier_wait(ring.empty(), ring.parity ^ 1);
        ready = true;
#pragma unroll
        for (int e = 0; e < kFours; ++e) {
          const int four = first + e * kWriters;
          if (four >= kPixels / 4) continue;
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            const int pixel = four * 4 + j;
            store_shared_4(
                to + pixel * kLine + ((lane / 4 ^ pixel % 8) << 4),
                is_word_of_input<T> ? MmaTF32::round(word[e][j]) : word[e][j] | high[e][j] << 16);
          }
        }
      }
      fence_for_wgmma();
      __syncwarp();
      if (lane == 0) barrier_arrive(ring.full());
    }
}

template <int ROW>
using InputSums = float[kInputTiles[ROW].blocks][kInputWidth / 2];

template <class T, int ROW, int SLICES>
__device__ __forceinline__ void multiply_panel(uint64_t x, uint64_t w, InputSums<ROW>& sum) {
  wgmma_fence();
#pragma unroll
  for (int slice = 0; slice < SLICES; ++slice)
#pragma unroll
    for (int b = 0; b < kInputTiles[ROW].blocks; ++b)
      Wgmma<T, kInputWidth>::add(sum[b],
                                 advance(x, (b * kRows * kLine + slice * kLine / kSlices) >> 4),
                                 advance(w, slice * kLine / kSlices >> 4));
  wgmma_commit();
}

// The sums of a warpgroup's pixels and a block of channels. `panels` is at the tile's first.
template <class T, int ROW>
__device__ __forceinline__ void multiply_block(const InputParams& p, int group, int block,
                                               StageRing panels, StageRing& ring,
                                               InputSums<ROW>& sum) {
  constexpr InputTile tile = kInputTiles[ROW];
  const uint64_t layout = swizzled_layout(kLine, 8 * kLine);
  const bool first = block == 0, last = block == p.column_blocks - 1;
  uint32_t previous = 0, previous_panel = 0;
  const auto release = [&] {
    if (threadIdx.x % 32 != 0) return;
    barrier_arrive(previous);
    if (last) barrier_arrive(previous_panel);
  };
  clear(sum);
#pragma unroll 1
  for (int panel = 0; panel < p.panels; ++panel, ring.advance(), panels.advance()) {
    if (first) barrier_wait(panels.full(), panels.parity);
    barrier_wait(ring.full(), ring.parity);
    const uint64_t x = operand(layout, panels.stage() + group * tile.blocks * kRows * kLine),
                   w = operand(layout, ring.stage());
    const int slices = panel == p.panels - 1 ? p.last_slices : kSlices;
    if (slices == kSlices) {
      multiply_panel<T, ROW, kSlices>(x, w, sum);
    } else if (slices == 3) {
      multiply_panel<T, ROW, 3>(x, w, sum);
    } else if (slices == 2) {
      multiply_panel<T, ROW, 2>(x, w, sum);
    } else {
      multiply_panel<T, ROW, 1>(x, w, sum);
    }
    if (panel > 0) {
      wgmma_wait<1>();
      release();
    }
    previous = ring.empty();
    previous_panel = panels.empty();
  }
  wgmma_wait<0>();
  release();
#pragma unroll
  for (int b = 0; b < tile.blocks; ++b) finished(sum[b]);
}

// The channel of a block's column 8 i + 2 t + odd, `t` being the lane among its row's.
__device__ __forceinline__ int channel_of(const InputParams& p, int i, int t, int odd) {
  if (p.order != kDealtOut) return 8 * i + 2 * t + odd;
  const int dealt = dealt_channels(p.number_bytes);
  return i / (dealt / 2) * 4 * dealt + t * dealt + i % (dealt / 2) * 2 + odd;
}

// A pixel in ordinary arithmetic. What is beside dY was multiplied as zeros, so what is NaN is summed again; rare.
template <class T>
__device__ __forceinline__ T plain_input(const InputParams& p, int pixel, int channel) {
  const Start at = start_of(p, pixel);
  const T* const y = static_cast<const T*>(p.source);
  const T* const w = static_cast<const T*>(p.weight) + channel * p.depth;
  float sum = 0;
  for (int k = 0; k < p.depth; ++k) {
    const int kh = k / p.kernel_row, number = k - kh * p.kernel_row;
    if (unsigned(at.row + kh * p.dilation_h) >= unsigned(p.y_h) ||
        unsigned(at.number + number) >= unsigned(p.y_row))
      continue;
    sum = fmaf(load(y + (at.element + kh * p.dilation_h * p.y_row + number)), load(w + k), sum);
  }
  return Numeric<T>::narrow(sum);
}
// Of what a thread has stored.
template <class T>
__device__ __noinline__ void mend_input(const InputParams& p, int first, int rows, int channel) {
  const int lane = threadIdx.x % 32;
  for (int row = 0; row < rows * 2; ++row) {
    const int pixel = first + row / 2 * kRows + row % 2 * 8 + lane / 4;
    if (pixel >= p.pixels) continue;
    for (int i = 0; i < kInputWidth / 4; ++i) {
      const int column = channel + channel_of(p, i / 2, lane % 4, i % 2);
      if (column >= p.columns) continue;
      T* const to = static_cast<T*>(p.destination) + (pixel * p.columns + column);
      const float value = Numeric<T>::widen(*to);
      if (value != value) *to = plain_input<T>(p, pixel, column);
    }
  }
}

template <class T, int ROW>
__device__ __forceinline__ void store_input(const InputParams& p, int tile, int group, int block,
                                            const InputSums<ROW>& sum) {
  constexpr int kDealt = dealt_channels(sizeof(T)), kBlocks = kInputTiles[ROW].blocks;
  const int lane = threadIdx.x % 32, t = lane % 4;
  const int first =
      tile * tile_pixels(kInputTiles[ROW]) + group * kBlocks * kRows + threadIdx.x / 32 % 4 * 16;
  const int channel = block * kInputWidth, left = p.columns - channel;
  bool good = true;
#pragma unroll
  for (int b = 0; b < kBlocks; ++b)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int pixel = first + b * kRows + half * 8 + lane / 4;
      if (pixel >= p.pixels) continue;
      T* const to = static_cast<T*>(p.destination) + (pixel * p.columns + channel);
      const auto number = [&](int i, int odd) { return sum[b][4 * i + 2 * half + odd]; };
#pragma unroll
      for (int i = 0; i < kInputWidth / 8; ++i)
        good &= number(i, 0) == number(i, 0) && number(i, 1) == number(i, 1);
      if (p.order == kDealtOut) {
#pragma unroll
        for (int i = 0; i < kInputWidth / 8; i += kDealt / 2) {
          const int at = i * 8 + t * kDealt;
          if (at >= left) continue;
          if constexpr (is_word_of_input<T>) {
            store_words(to + at, __float_as_uint(number(i, 0)), __float_as_uint(number(i, 1)),
                        __float_as_uint(number(i + 1, 0)), __float_as_uint(number(i + 1, 1)));
          } else {
            store_words(to + at, pack<T>(number(i, 0), number(i, 1)),
                        pack<T>(number(i + 1, 0), number(i + 1, 1)),
                        pack<T>(number(i + 2, 0), number(i + 2, 1)),
                        pack<T>(number(i + 3, 0), number(i + 3, 1)));
          }
        }
      } else if (p.order == kPairs) {
#pragma unroll
        for (int i = 0; i < kInputWidth / 8; ++i) {
          const int at = i * 8 + t * 2;
          if (at >= left) continue;
          store_pair(to + at, number(i, 0), number(i, 1));
        }
      } else {
#pragma unroll
        for (int i = 0; i < kInputWidth / 8; ++i)
#pragma unroll
          for (int odd = 0; odd < 2; ++odd)
            if (i * 8 + t * 2 + odd < left)
              to[i * 8 + t * 2 + odd] = Numeric<T>::narrow(number(i, odd));
      }
    }
  if (!good) mend_input<T>(p, first, kBlocks, channel);
}

template <class T, int ROW>
__global__ void __launch_bounds__(kThreads, 1)
    convt2d_spread_input_kernel(const __grid_constant__ InputParams p,
                                const __grid_constant__ CUtensorMap map) {
#ifdef CONVT2D_HAS_WGMMA
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32_t shared = shared_address(smem);
  StageRing ring{shared, shared + p.stages_at, p.stages, kInputStage};
  if (threadIdx.x < p.stages) {
    barrier_init(ring.barriers + threadIdx.x * 16, 1);
    barrier_init(ring.barriers + threadIdx.x * 16 + 8, kConsumers / 32);
  }
  StageRing panels = panels_of<ROW>(p, shared);
  if (threadIdx.x < p.slots) {
    barrier_init(panels.barriers + threadIdx.x * 16, kWriters);
    barrier_init(panels.barriers + threadIdx.x * 16 + 8, kConsumers / 32);
  }
  fence_for_wgmma();  // and for the copy engine
  __syncthreads();
  if (threadIdx.x >= kConsumers) {
    fewer_registers<kProducerRegisters>();
    if (threadIdx.x >= kConsumers + 32) {
      write_panels<T, ROW>(p, shared);
    } else if (threadIdx.x == kConsumers) {
      bring_columns(p, map, ring);
    }
  } else {
    more_registers<kConsumerRegisters>();
    const int group = warpgroup_of_block();
    for (int tile = blockIdx.x; tile < p.tiles; tile += p.walkers) {
#pragma unroll 1
      for (int block = 0; block < p.column_blocks; ++block) {
        InputSums<ROW> sum;
        multiply_block<T, ROW>(p, group, block, panels, ring, sum);
        store_input<T, ROW>(p, tile, group, block, sum);
      }
      panels.index += p.panels;
      if (panels.index >= panels.count) panels.index -= panels.count, panels.parity ^= 1;
    }
  }
#endif
}

}  // namespace convt2d::cuda::spread
