// The slide kernel; slide_config.h draws the tiling.
//
// One thread asks the copy engine for patches of x, in a ring of stages: `full` ends a phase when a stage has arrived,
// `empty` when every warp that multiplies has read it. Two warpgroups multiply, each rows of its own, and store; while
// one stores the other multiplies.
#pragma once

#include "cuda/device/barrier.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/start_stages.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/slide/slide_store.cuh"

namespace convt2d::cuda::slide {

// All of a block's weights: for a kernel row and 16 channels, rows of 8 channels, half after half.
template <class T, int ROW>
__device__ __forceinline__ void bring_weights(const Params& p, const Scope& at, uint32_t shared) {
  constexpr Tile tile = kTiles[ROW];
  // A channel's rows: with an even number of kernel columns where it has half of a thread's rows.
  constexpr int kColumns = tile.halved ? 2 * blocks(tile) : tile.kernel;
  const T* const weight = static_cast<const T*>(p.weight) + int64_t{at.group} * p.weight_group;
  const int taps = p.kernel_h * kColumns, count = p.slices * 2 * channels(tile) * taps;
#pragma unroll 2
  for (int i = threadIdx.x; i < count; i += kThreads) {
    const int octet = i / (channels(tile) * taps), rest = i - octet * (channels(tile) * taps);
    const int inside = rest / taps, tap = rest - inside * taps;
    const int kh = tap / kColumns, kw = tap - kh * kColumns;
    const int channel = at.column_tile * channels(tile) + inside;
    const int left = kw < tile.kernel && channel < p.columns ? p.reduce - octet * 8 : 0;
    const char* from = reinterpret_cast<const char*>(
        weight + (int64_t{octet * 8} * p.weight_reduce + int64_t{channel} * p.weight_column +
                  kh * p.weight_h + kw * p.weight_w));
    uint32_t number[8], word[4];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      number[j] = load_if<2>(from, j, left);
      from += p.weight_reduce * int64_t(sizeof(T));
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) word[j] = number[2 * j] | number[2 * j + 1] << 16;
    const int block = tile.halved ? kw / 2 : kw, half = tile.halved ? kw % 2 : inside / 32;
    const int row = block * kRows + inside % 32 / 8 * 16 + half * 8 + inside % 8;
    store_shared_16(shared + p.weights_at + (kh * p.slices + octet / 2) * slice_bytes(tile) +
                        (octet % 2 * (blocks(tile) * kRows) + row) * 16,
                    word);
  }
}

template <class T, int ROW>
__device__ __forceinline__ void bring_bias(const Params& p, const Scope& at, uint32_t shared) {
  const int i = threadIdx.x, channel = at.column_tile * channels(kTiles[ROW]) + i;
  if (i >= channels(kTiles[ROW])) return;
  const bool exists = p.bias && channel < p.columns;
  store_shared_4(
      shared + kBiasAt + i * 4,
      exists ? __float_as_uint(load(static_cast<const T*>(p.bias) + at.group * p.columns + channel))
             : 0);
}

__device__ __forceinline__ void bring_patches(const Params& p, const CUtensorMap& map,
                                              const Scope& at, StageRing& ring) {
  for_visits(p, at, [&](const Visit& visit) {
    barrier_wait(ring.empty(), ring.parity ^ 1);
    barrier_expect(ring.full(), p.stage_bytes);
    const int first = visit.sweep * p.run, last = first + p.run;
    uint32_t to = ring.stage();
    for (int pixel = first; pixel < last; pixel += p.box, to += p.box_bytes)
      copy_box(to, &map, ring.full(), pixel, at.group * p.reduce, visit.row - p.reach, visit.n);
    ring.advance();
  });
}

template <class T, int ROW, int SLICES>
__device__ __forceinline__ void multiply_slices(uint64_t w, uint64_t x, uint32_t x_step,
                                                Sums<ROW>& sum) {
  constexpr Tile tile = kTiles[ROW];
  wgmma_fence();
#pragma unroll
  for (int slice = 0; slice < SLICES; ++slice)
#pragma unroll
    for (int b = 0; b < blocks(tile); ++b)
      Wgmma<T, tile.width, true>::add(sum[b],
                                      advance(w, (slice * slice_bytes(tile) + b * kRows * 16) >> 4),
                                      advance(x, slice * x_step));
  wgmma_commit();
}

// The products of a tile; `x`: of its first position, in its own row of x.
template <class T, int ROW>
__device__ __forceinline__ void multiply(const Params& p, int phase, uint32_t shared, uint32_t x,
                                         Sums<ROW>& sum) {
  constexpr Tile tile = kTiles[ROW];
  const uint32_t pixels = p.box * int(sizeof(T)), row = p.reduce_padded * pixels;
  const uint64_t w_layout = operand_layout(blocks(tile) * kRows * 16, 8 * 16),
                 x_layout = turned_layout(pixels, p.tile_rows > 1 ? row : p.box_bytes);
  const uint32_t x_step = kSlice * pixels >> 4, w_step = slice_bytes(tile) >> 4;
  start<ROW>(shared, sum);
  const int first_tap = p.first_tap[phase], end_tap = p.first_tap[phase + 1];
#pragma unroll 1
  for (int i = first_tap; i < end_tap; ++i) {
    const int kh = p.tap[i];
    uint64_t a = operand(w_layout, shared + p.weights_at + kh * p.slices * slice_bytes(tile)),
             b = operand(x_layout, x - p.tap_shift[kh] * row);
    int left = p.slices;
#pragma unroll 1
    for (; left >= 4; left -= 4) {
      multiply_slices<T, ROW, 4>(a, b, x_step, sum);
      a = advance(a, 4 * w_step), b = advance(b, 4 * x_step);
    }
#pragma unroll 1
    for (; left > 0; --left) {
      multiply_slices<T, ROW, 1>(a, b, x_step, sum);
      a = advance(a, w_step), b = advance(b, x_step);
    }
  }
  wgmma_wait<0>();
#pragma unroll
  for (int b = 0; b < blocks(tile); ++b) finished(sum[b]);
}

template <class T, int ROW>
__device__ __forceinline__ void consume(const Params& p, const Scope& at, uint32_t shared,
                                        StageRing& ring) {
  constexpr Tile tile = kTiles[ROW];
  constexpr int kWaiting = thread_channels(tile) * carried(tile) * kWaitingBytes;
  const int group = warpgroup_of_block();
  const uint32_t staging = shared + p.staging_at + threadIdx.x / 32 * staging_bytes(p),
                 waiting = shared + p.carried_at + threadIdx.x / 4 * 4;
  const uint32_t row_bytes = p.reduce_padded * p.box * int(sizeof(T));
  for_visits(p, at, [&](const Visit& visit) {
    barrier_wait(ring.full(), ring.parity);
    const int tasks = p.turns * p.stride_h;
    for (int task = 0; task < tasks; ++task) {
      const int turn = task / p.stride_h, phase = task - turn * p.stride_h;
      const int row = (group * p.turns + turn) * p.tile_rows;
      const bool there = visit.row + row < p.end_row;
      Sums<ROW> sum;
      multiply<T, ROW>(p, phase, shared, ring.stage() + (p.reach + row) * row_bytes, sum);
      if (task == tasks - 1 && threadIdx.x % 32 == 0) barrier_arrive(ring.empty());
      if (there)
        store_tile<T, ROW>(p, at,
                           {visit.n, visit.row + row, phase, visit.sweep * p.run, visit.sweep == 0,
                            visit.sweep == p.sweeps - 1},
                           sum, shared, staging, waiting + task * p.tile_rows * kWaiting);
    }
    ring.advance();
  });
}

template <class T, int ROW>
__global__ void __launch_bounds__(kThreads, 1)
    convt2d_slide_kernel(const __grid_constant__ Params p,
                         const __grid_constant__ CUtensorMap map) {
#ifdef CONVT2D_HAS_WGMMA
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32_t shared = shared_address(smem);
  const Scope at = scope_of(p);
  StageRing ring{shared, shared + p.stages_at, p.stages, p.stage_bytes};
  start_stages(ring.barriers, p.stages, 1, kConsumers / 32);
  bring_bias<T, ROW>(p, at, shared);
  bring_weights<T, ROW>(p, at, shared);
  fence_for_wgmma();  // and for the copy engine
  __syncthreads();
  if (warp_of_block() >= kConsumers / 32) {
    fewer_registers<kProducerRegisters>();
    if (threadIdx.x == kConsumers) bring_patches(p, map, at, ring);
  } else {
    more_registers<kConsumerRegisters>();
    consume<T, ROW>(p, at, shared, ring);
  }
#endif
}

}  // namespace convt2d::cuda::slide
