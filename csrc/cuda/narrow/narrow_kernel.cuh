// The narrow kernel; narrow_config.h draws the tiling.
//
// One thread asks the copy engine for rows of x, in a ring of stages: `full` ends a phase when a row has arrived, `empty`
// when every warp that multiplies has left it behind. Warpgroups go down the rows each on their own.
#pragma once

#include "cuda/device/memory.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/start_stages.cuh"
#include "cuda/device/strict_product.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/narrow/narrow_collect.cuh"

namespace convt2d::cuda::narrow {

template <class T>
constexpr bool is_word = sizeof(T) == 4;

// All weights, as the tensor core wants them: 16 bits turned as x is, eight columns of a channel in 16 bytes; else in rows
// of channels. Where words are fetched, the even ones of a slice first, so that lanes which fetch channels 2 t of x meet no
// bank twice.
template <class T, int ROW>
__device__ __forceinline__ void bring_weights(const Params& p, uint32_t shared) {
  constexpr Tile tile = kTiles[ROW];
  constexpr int kSlice = slice_channels(sizeof(T));
  const int count = p.shifts * p.reduce_padded * tile.width;
#pragma unroll 4
  for (int i = threadIdx.x; i < count; i += kThreads) {
    const int row = i / tile.width, n = i % tile.width;
    const int shift = row / p.reduce_padded, c = row - shift * p.reduce_padded;
    const int line = n / p.kernel_w, kw = n - line * p.kernel_w;
    const int phase = line / p.columns, channel = line - phase * p.columns;
    const int reach = p.shift[shift] * p.stride_h + phase, kh = reach / p.dilation_h;
    const bool there =
        c < p.reduce && phase < p.stride_h && kh < p.kernel_h && kh * p.dilation_h == reach;
    const T* const from = static_cast<const T*>(p.weight) + int64_t{c} * p.weight_reduce +
                          channel * p.weight_column + kh * p.weight_h + kw * p.weight_w;
    uint32_t word = load_if<sizeof(T)>(from, 0, there);
    const int k = c % kSlice;
    const uint32_t to =
        shared + p.weights_at + (shift * p.slices + c / kSlice) * slice_weights(tile);
    if constexpr (is_word<T>) {
      const uint32_t place = to + (p.channels_last ? k / 4 : k % 2) * tile.width * 16 + n * 16 +
                             (p.channels_last ? k % 4 : k / 2) * 4;
      if constexpr (tile.strict) {
        uint32_t rest;
        MmaF32x3::split(word, word, rest);
        store_shared_4(place + p.weights_bytes, rest);
      } else {
        word = MmaTF32::round(word);
      }
      store_shared_4(place, word);
    } else {
      store_shared_2(to + (p.channels_last ? k / 8 * tile.width * 16 + n * 16 + k % 8 * 2
                                           : n / 8 * 256 + k * 16 + n % 8 * 2),
                     static_cast<unsigned short>(word));
    }
  }
}

__device__ __forceinline__ void bring_rows(const Params& p, const CUtensorMap& map,
                                           StageRing& ring) {
  for_items(p, [&](const Item& item) {
    const int first = item.sweep * p.step;
    for (int row = item.row - p.reach; row < item.row + item.rows; ++row, ring.advance()) {
      barrier_wait(ring.empty(), ring.parity ^ 1);
      barrier_expect(ring.full(), p.stage_bytes);
      uint32_t to = ring.stage();
      const int numbers = p.line / p.number_bytes;
      if (p.channels_last) {
        for (int channel = 0; channel < p.reduce; channel += numbers, to += p.box_bytes)
          copy_box(to, &map, ring.full(), channel, first, row, item.n);
      } else {
        for (int pixel = 0; pixel < p.run; pixel += numbers, to += p.box_bytes)
          copy_box(to, &map, ring.full(), first + pixel, 0, row, item.n);
      }
    }
  });
}

// Where a lane finds its words of the first slice of a row: of two pixels, channels 2 t and 2 t + 1.
using Places = uint32_t[2][2];
__device__ __forceinline__ void find_pixels(const Params& p, Places& place) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, numbers = p.line / 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int pixel = warp * 16 + half * 8 + lane / 4;
    const int image = pixel / p.run, inside = pixel - image * p.run, box = inside / numbers;
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      const uint32_t at =
          ((box * p.images + image) * p.reduce_padded + lane % 4 * 2 + odd) * p.line +
          (inside - box * numbers) * 4;
      place[half][odd] = at ^ (at >> 7 & (p.line / 16 - 1)) << 4;
    }
  }
}

// Adds the products of so many slices. `x` and `w`: of the first.
template <class T, int ROW, int SLICES>
__device__ __forceinline__ void multiply_slices(const Params& p, const Places& place, uint32_t x,
                                                uint64_t w, Sums<T, ROW>& sum) {
  constexpr Tile tile = kTiles[ROW];
  constexpr uint32_t kWeights = slice_weights(tile) >> 4;
  const uint32_t slice_bytes = slice_channels(sizeof(T)) * p.line;
  if constexpr (is_word<T>) {
    uint32_t word[SLICES][1][4];
    const auto fetch = [&](int slice) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        word[slice][0][i] = load_shared_4(x + slice * slice_bytes + place[i % 2][i / 2]);
    };
    if constexpr (tile.strict) {
      uint32_t rest[SLICES][1][4];
#pragma unroll
      for (int slice = 0; slice < SLICES; ++slice) {
        fetch(slice);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          MmaF32x3::split(word[slice][0][i], word[slice][0][i], rest[slice][0][i]);
      }
      add_strict<tile.width>(sum, word, rest, w, kWeights, p.weights_bytes >> 4);
    } else {
#pragma unroll
      for (int slice = 0; slice < SLICES; ++slice) {
        fetch(slice);
        wgmma_fence();
        WgmmaFetched<T, tile.width>::add(sum[0], word[slice][0], advance(w, slice * kWeights));
        wgmma_commit();
      }
      wgmma_wait<0>();
    }
  } else {
    const uint64_t pixels = operand(turned_layout(p.line, p.reduce_padded * p.line), x);
    wgmma_fence();
#pragma unroll
    for (int slice = 0; slice < SLICES; ++slice)
#pragma unroll
      for (int o = 0; o < operands(sizeof(T)); ++o)
        WgmmaTurned<T, tile.width>::add(
            sum[o], advance(pixels, (o * p.reduce_padded * 128 + slice * slice_bytes) >> 4),
            advance(w, slice * kWeights));
    wgmma_commit();
  }
}

// The same of pixels that are rows of channels. Four slices are a line.
template <class T, int ROW, int SLICES>
__device__ __forceinline__ void multiply_lines(const Params& p, uint32_t x, uint64_t w,
                                               Sums<T, ROW>& sum) {
  constexpr Tile tile = kTiles[ROW];
  const uint64_t pixels = operand(swizzled_layout(p.line, 8 * p.line), x);
  wgmma_fence();
#pragma unroll
  for (int slice = 0; slice < SLICES; ++slice)
#pragma unroll
    for (int o = 0; o < operands(sizeof(T)); ++o)
      Wgmma<T, tile.width>::add(sum[o],
                                advance(pixels, (o * kRows * p.line + slice * kSliceBytes) >> 4),
                                advance(w, slice * slice_weights(tile) >> 4));
  wgmma_commit();
}

// The products of a row; `ring` is at the row of x that is `reach` above it.
template <class T, int ROW>
__device__ __forceinline__ void multiply(const Params& p, uint32_t shared, const Places& place,
                                         const StageRing& ring, Sums<T, ROW>& sum) {
  constexpr Tile tile = kTiles[ROW];
  const uint64_t layout = is_word<T> || p.channels_last ? operand_layout(tile.width * 16, 128)
                                                        : operand_layout(128, 256);
  const uint32_t slice_bytes = p.channels_last ? kSliceBytes : slice_channels(sizeof(T)) * p.line;
  const uint32_t slices_bytes = p.channels_last ? p.box_bytes : 4 * slice_bytes;  // of four
  clear(sum);
#pragma unroll 1
  for (int i = 0; i < p.shifts; ++i) {
    StageRing row = ring;
    row.index += p.reach - p.shift[i];
    if (row.index >= row.count) row.index -= row.count, row.parity ^= 1;
    barrier_wait(row.full(), row.parity);
    uint32_t x = row.stage();
    uint64_t w = operand(layout, shared + p.weights_at + i * p.slices * slice_weights(tile));
    const auto add = [&](auto slices) {
      constexpr int kSlices = decltype(slices)::value;
      if (!kTiles[ROW].strict && p.channels_last) {
        multiply_lines<T, ROW, kSlices>(p, x, w, sum);
      } else {
        multiply_slices<T, ROW, kSlices>(p, place, x, w, sum);
      }
      x += kSlices == 4 ? slices_bytes : kSlices * slice_bytes;
      w = advance(w, kSlices * slice_weights(tile) >> 4);
    };
    int left = p.slices;
#pragma unroll 1
    for (; left >= 4; left -= 4) add(std::integral_constant<int, 4>());
    if (left & 2) add(std::integral_constant<int, 2>());
    if (left & 1) add(std::integral_constant<int, 1>());
  }
  wgmma_wait<0>();
#pragma unroll
  for (int o = 0; o < operands(sizeof(T)); ++o) finished(sum[o]);
}

template <class T, int ROW>
__device__ __forceinline__ void consume(const Params& p, uint32_t shared, StageRing& ring) {
  const int group = warpgroup_of_block();
  const uint32_t products = shared + p.products_at + group * p.products_bytes;
  Places place;
  if constexpr (is_word<T>) find_pixels(p, place);
  for_items(p, [&](const Item& item) {
    const int end = item.rows + p.reach;
    int at = 0;  // the row of x that the ring is at
    const auto leave_until = [&](int row) {
      for (; at < min(row, end); ++at, ring.advance()) {
        barrier_wait(ring.full(), ring.parity);  // or this would be about what was there before
        if (threadIdx.x % 32 == 0) barrier_arrive(ring.empty());
      }
    };
    leave_until(group);
    for (int row = group; row < item.rows; row += kGroups) {
      Sums<T, ROW> sum;
      multiply<T, ROW>(p, shared, place, ring, sum);
      leave_until(row + kGroups);
      barrier_among(1 + group, 128);  // the row before has been collected
      store_products<T, ROW>(p, sum, products);
      barrier_among(1 + group, 128);
      collect<T>(p, item, item.row + row, products);
    }
    leave_until(end);
  });
}

template <class T, int ROW>
__global__ void __launch_bounds__(kThreads, 1)
    convt2d_narrow_kernel(const __grid_constant__ Params p,
                          const __grid_constant__ CUtensorMap map) {
#ifdef CONVT2D_HAS_WGMMA
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32_t shared = shared_address(smem);
  StageRing ring{shared, shared + p.stages_at, p.stages, p.stage_bytes};
  start_stages(ring.barriers, p.stages, 1, kConsumers / 32);
  bring_weights<T, ROW>(p, shared);
  for (int at = threadIdx.x * 4; at < kGroups * p.products_bytes; at += kThreads * 4)
    store_shared_4(shared + p.products_at + at, 0);  // the margins stay
  fence_for_wgmma();                                 // and for the copy engine
  __syncthreads();
  if (threadIdx.x >= kConsumers) {
    fewer_registers<kProducerRegisters>();
    if (threadIdx.x == kConsumers) bring_rows(p, map, ring);
  } else {
    more_registers<kConsumerRegisters>();
    consume<T, ROW>(p, shared, ring);
  }
#endif
}

}  // namespace convt2d::cuda::narrow
