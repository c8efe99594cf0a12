// The fold kernel; fold_config.h draws the tiling.
//
// One thread asks the copy engine for the chunks of a block's tiles, in a ring of stages: `full` ends a phase when a
// stage has arrived, `empty` when every warp that multiplies has read it. A warpgroup that has multiplied a tile puts
// its products into shared memory, a block of rows at a time, and collects the outputs; meanwhile the other one may multiply.
#pragma once

#include "cuda/device/barrier.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/fold/fold_collect.cuh"

namespace convt2d::cuda::fold {

// All of a block's weights, as the copy engine would have laid them, but for the lead.
template <class T, int ROW>
__device__ __forceinline__ void bring_weights(const Params& p, const Scope& at, uint32_t shared) {
  constexpr Tile tile = kTiles[ROW];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const T* const first = static_cast<const T*>(p.weight) +
                         static_cast<int64_t>(at.group) * p.reduce * p.weight_stride[0];
  for (int block = 0; block < row_blocks(tile); ++block) {
    int from[2];  // elements from the input channel's first; negative: a row that is none
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = 2 * lane + i, inside = row / taps(p), tap = row - inside * taps(p);
      const int channel = first_channel(p, tile, at, block) + inside;
      from[i] = inside < p.row_channels && channel < p.columns
                    ? channel * p.weight_stride[1] + tap / p.kernel * p.weight_stride[2] +
                          tap % p.kernel * p.weight_stride[3]
                    : -1;
    }
#pragma unroll 4
    for (int line = warp; line < p.chunks * p.depth; line += kThreads / 32) {
      const int chunk = line / p.depth, inside = line - chunk * p.depth;
      const T* const channel = first + int64_t{line} * p.weight_stride[0];
      float number[2];
#pragma unroll
      for (int i = 0; i < 2; ++i)
        number[i] = line < p.reduce && from[i] >= 0 ? load(channel + from[i]) : 0.f;
      uint32_t to = shared + p.weights_at + chunk * weight_bytes(p, tile) +
                    (block * p.depth + inside) * kLine + lane * 4;
      to ^= (to >> 7 & 7) << 4;
      store_shared_4(to, pack<T>(number[0], number[1]));
    }
  }
}

// The bias of its channels.
template <class T, int ROW>
__device__ __forceinline__ void bring_bias(const Params& p, const Scope& at, uint32_t shared) {
  constexpr Tile tile = kTiles[ROW];
  const int first = first_channel(p, tile, at, 0);
  for (int i = threadIdx.x; i < block_channels(p, tile); i += kThreads) {
    const bool exists = p.bias && first + i < p.columns;
    store_shared_4(shared + kBiasAt + i * 4,
                   exists ? __float_as_uint(load(static_cast<const T*>(p.bias) +
                                                 at.group * p.columns + first + i))
                          : 0);
  }
}

template <int ROW>
__device__ __forceinline__ void bring_tiles(const Params& p, const Maps& maps, const Scope& at,
                                            StageRing& ring) {
  constexpr Tile tile = kTiles[ROW];
  for (int i = at.walker; i < p.items; i += p.walkers) {
    const Item item = item_of(p, i);
    for (int row = item.first_row; row < item.end_row; row += p.tile_rows) {
      const int pixel = row * p.x_w + (p.strips > 1 ? item.first_position + p.low_w : 0);
      for (int chunk = 0; chunk < p.chunks; ++chunk, ring.advance()) {
        barrier_wait(ring.empty(), ring.parity ^ 1);
        barrier_expect(ring.full(), ring.bytes);
        uint32_t to = ring.stage();
        for (int line = 0; line < tile_lines(tile); ++line, to += p.depth * kLine) {
          const bool images = p.tile_images > 1;
          copy_box(to, &maps.x, ring.full(), images ? 0 : pixel + line * kLineNumbers,
                   chunk * p.depth, at.group, item.n + (images ? line : 0));
        }
        if (p.resident) continue;
        for (int block = 0; block < row_blocks(tile); ++block, to += p.depth * kLine) {
          const int channel = first_channel(p, tile, at, block);
          copy_box(to, &maps.w, ring.full(), channel * taps(p) - lead(p, channel), chunk * p.depth,
                   at.group, 0);
        }
      }
    }
  }
}

template <class T, int ROW>
using Sums = float[kTiles[ROW].row_blocks][kTiles[ROW].width / 2];

template <class T, int ROW, int SLICES>
__device__ __forceinline__ void multiply_slices(const Params& p, uint64_t w, uint64_t x,
                                                Sums<T, ROW>& sum) {
  constexpr Tile tile = kTiles[ROW];
#pragma unroll
  for (int slice = 0; slice < SLICES; ++slice)
#pragma unroll
    for (int b = 0; b < tile.row_blocks; ++b)
      WgmmaTurned<T, tile.width>::add(
          sum[b], advance(w, b * p.depth * (kLine >> 4) + slice * (kSlice * kLine >> 4)),
          advance(x, slice * (kSlice * kLine >> 4)));
}

// The products of a tile.
template <class T, int ROW>
__device__ __forceinline__ void multiply(const Params& p, uint32_t shared, StageRing& ring,
                                         Sums<T, ROW>& sum) {
  constexpr Tile tile = kTiles[ROW];
  const int group = threadIdx.x / 128, row_group = group / parts(tile), part = group % parts(tile);
  const uint64_t layout = turned_layout(kLine, p.depth * kLine);
  clear(sum);
  uint32_t previous = 0;
#pragma unroll 1
  for (int chunk = 0; chunk < p.chunks; ++chunk, ring.advance()) {
    barrier_wait(ring.full(), ring.parity);
    const uint32_t stage = ring.stage();
    const uint32_t weights = p.resident ? shared + p.weights_at + chunk * weight_bytes(p, tile)
                                        : stage + x_bytes(p, tile);
    const uint64_t w = operand(layout, weights + row_group * tile.row_blocks * p.depth * kLine);
    const uint64_t x =
        operand(layout, stage + part * (tile.width / kLineNumbers) * p.depth * kLine);
    wgmma_fence();
    // A loop of a number that is not known makes the compiler wait for each.
    if (p.depth == 4 * kSlice) {
      multiply_slices<T, ROW, 4>(p, w, x, sum);
    } else if (p.depth == 2 * kSlice) {
      multiply_slices<T, ROW, 2>(p, w, x, sum);
    } else {
      multiply_slices<T, ROW, 1>(p, w, x, sum);
    }
    wgmma_commit();
    if (chunk > 0) {
      wgmma_wait<1>();
      if (threadIdx.x % 32 == 0) barrier_arrive(previous);
    }
    previous = ring.empty();
  }
  wgmma_wait<0>();
  if (threadIdx.x % 32 == 0) barrier_arrive(previous);
#pragma unroll
  for (int b = 0; b < tile.row_blocks; ++b) finished(sum[b]);
}

// The products of one of a warpgroup's blocks of rows go to shared memory. `place`: bytes in a row of products, of a pair
// of pixels.
template <int PITCH, int WIDTH>
__device__ __forceinline__ void put_products(const Params& p, uint32_t products,
                                             const uint32_t (&place)[WIDTH / 8],
                                             const float (&sum)[WIDTH / 2]) {
  const int row = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
#pragma unroll
  for (int i = 0; i < WIDTH / 8; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t to = products + (row + half * 8) * PITCH * 4;
      const uint32_t pair[2] = {__float_as_uint(sum[4 * i + 2 * half]),
                                __float_as_uint(sum[4 * i + 2 * half + 1])};
      if (p.paired) {
        store_shared<2>(to + (place[i] & 0xffff), pair);
      } else {
        store_shared_4(to + (place[i] & 0xffff), pair[0]);
        store_shared_4(to + (place[i] >> 16), pair[1]);
      }
    }
}

template <class T, int ROW>
__device__ __forceinline__ void consume(const Params& p, const Scope& at, uint32_t shared,
                                        StageRing& ring) {
  constexpr Tile tile = kTiles[ROW];
  constexpr int kMembers = 128 * parts(tile);  // threads that share rows
  const int group = threadIdx.x / 128, row_group = group / parts(tile);
  const int member = threadIdx.x % kMembers, barrier = 1 + row_group;
  const uint32_t products = shared + p.products_at + row_group * product_bytes(tile);
  uint32_t place[tile.width / 8];
  for (int i = at.walker; i < p.items; i += p.walkers) {
    const Item item = item_of(p, i);
    if (p.strips > 1 || i == at.walker) {
      // The zeros between rows of x; other strips have them elsewhere.
      for (int to = member * 16; to < product_bytes(tile); to += kMembers * 16)
        store_shared_16(products + to, {0, 0, 0, 0});
#pragma unroll
      for (int j = 0; j < tile.width / 8; ++j) {
        const int pixel = group % parts(tile) * tile.width + 8 * j + threadIdx.x % 4 * 2;
        place[j] = product_byte(p, tile, item, pixel) | product_byte(p, tile, item, pixel + 1)
                                                            << 16;
      }
      barrier_among(barrier, kMembers);
    }
    int turn = 0;
    for (int first = item.first_row; first < item.end_row; first += p.tile_rows, turn ^= 1) {
      Sums<T, ROW> sum;
      multiply<T, ROW>(p, shared, ring, sum);
      const Moment now = moment_of(p, item, first);
#pragma unroll
      for (int b = 0; b < tile.row_blocks; ++b) {
        put_products<pitch(tile), tile.width>(p, products, place, sum[b]);
        barrier_among(barrier, kMembers);
        const int block = row_group * tile.row_blocks + b;
        const int channel = first_channel(p, tile, at, block);
        const uint32_t carried = shared + p.carried_at + block * 2 * carried_bytes(p);
        collect<T, pitch(tile)>(
            p, item, now,
            {at.group * p.columns + channel, min(p.row_channels, p.columns - channel),
             products + lead(p, channel) * pitch(tile) * 4,
             shared + kBiasAt + block * p.row_channels * 4, carried + turn * carried_bytes(p),
             carried + (turn ^ 1) * carried_bytes(p)},
            member / 32, kMembers / 32);
        barrier_among(barrier, kMembers);
      }
    }
  }
}

template <class T, int ROW>
__global__ void __launch_bounds__(kThreads, 1)
    convt2d_fold_kernel(const __grid_constant__ Params p, const __grid_constant__ Maps maps) {
#ifdef CONVT2D_HAS_WGMMA
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32_t shared = shared_address(smem);
  constexpr Tile tile = kTiles[ROW];
  const Scope at = scope_of(p);
  StageRing ring{shared, shared + p.stages_at, p.stages, stage_bytes(p, tile)};
  if (threadIdx.x < p.stages) {
    barrier_init(ring.barriers + threadIdx.x * 16, 1);
    barrier_init(ring.barriers + threadIdx.x * 16 + 8, kConsumers / 32);
  }
  bring_bias<T, ROW>(p, at, shared);
  if (p.resident) bring_weights<T, ROW>(p, at, shared);
  fence_for_wgmma();  // and for the copy engine
  __syncthreads();
  if (threadIdx.x >= kConsumers) {
    fewer_registers<kProducerRegisters>();
    if (threadIdx.x == kConsumers) bring_tiles<ROW>(p, maps, at, ring);
  } else {
    more_registers<kConsumerRegisters>();
    consume<T, ROW>(p, at, shared, ring);
  }
#endif
}

}  // namespace convt2d::cuda::fold
