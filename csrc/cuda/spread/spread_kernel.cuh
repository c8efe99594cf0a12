// The spread kernel; spread_config.h draws the tiling.
//
// Eight warps bring a block's chunks into a ring of stages: `full` ends a phase when their stores and the copy engine's boxes
// have arrived, `empty` when every warp that multiplies has read a stage.
#pragma once

#include "cuda/spread/spread_collect.cuh"
#include "cuda/spread/spread_mesh.cuh"
#include "cuda/spread/spread_stage.cuh"
#include "cuda/spread/spread_whole.cuh"

namespace convt2d::cuda::spread {

// Adds the products of so many instructions' channels. `x` and `w`: of the first; `step`: 16 bytes from there to the next.
template <class T, int ROW, int SLICES>
__device__ __forceinline__ void multiply_slices(uint64_t x, uint64_t w, uint32_t step,
                                                Sums<ROW>& sum) {
  wgmma_fence();
#pragma unroll
  for (int slice = 0; slice < SLICES; ++slice)
#pragma unroll
    for (int b = 0; b < kBlocks; ++b)
      Wgmma<T, kTiles[ROW].width, !is_word<T>>::add(
          sum[b], advance(x, (b * kRows * kLine + slice * kLine / kSlices) >> 4),
          advance(w, slice * step));
  wgmma_commit();
}

// The products of a warpgroup's pixels.
template <class T, int ROW>
__device__ __forceinline__ void multiply(const Params& p, int group, StageRing& ring,
                                         Sums<ROW>& sum) {
  constexpr int kWidth = kTiles[ROW].width;
  const int count = p.shifts * kWidth;
  const uint64_t pixels = swizzled_layout(kLine, 8 * kLine);
  const uint64_t weights = is_word<T> ? operand_layout(count * 16, 128)
                                      : operand_layout(128, line_numbers(sizeof(T)) * 16);
  const uint32_t step = is_word<T> ? count * 2 : 16,
                 shift_step = is_word<T> ? kWidth : kWidth / 8 * line_numbers(sizeof(T));
  const uint32_t row = p.run * kLine;
  clear(sum);
  uint32_t previous = 0;
#pragma unroll 1
  for (int chunk = 0; chunk < p.chunks; ++chunk, ring.advance()) {
    barrier_wait(ring.full(), ring.parity);
    uint32_t from = ring.stage() + group * kBlocks * kRows * kLine + (p.shifts - 1) * row;
    uint64_t w = operand(weights, ring.stage() + p.x_bytes);
    const int slices = chunk == p.chunks - 1 ? p.last_slices : kSlices;
#pragma unroll 1
    for (int shift = 0; shift < p.shifts; ++shift, from -= row, w = advance(w, shift_step)) {
      const uint64_t x = operand(pixels, from);
      if (slices == kSlices) {
        multiply_slices<T, ROW, kSlices>(x, w, step, sum);
      } else {
        if (slices & 2) multiply_slices<T, ROW, 2>(x, w, step, sum);
        if (slices & 1)
          multiply_slices<T, ROW, 1>(advance(x, (slices & 2) * (kLine / kSlices >> 4)),
                                     advance(w, (slices & 2) * step), step, sum);
      }
      if (shift == 0 && chunk > 0) {
        wgmma_wait<1>();
        if (threadIdx.x % 32 == 0) barrier_arrive(previous);
      }
    }
    previous = ring.empty();
  }
  wgmma_wait<0>();
  if (threadIdx.x % 32 == 0) barrier_arrive(previous);
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) finished(sum[b]);
}

template <class T, int ROW>
__device__ __forceinline__ void consume(const Params& p, uint32_t shared, StageRing& ring) {
  const int group = warpgroup_of_block();
  const uint32_t products = shared + p.products_at + group * p.products_bytes,
                 lines = shared + p.lines_at + group * p.lines * 8;
  static_assert(kBlocks == 2);
  for_items(p, [&](const Item& item) {
    Sums<ROW> sum;
    if constexpr (fetched(kTiles[ROW])) {
      multiply_fetched<T, ROW>(p, group, ring, sum);
    } else {
      multiply<T, ROW>(p, group, ring, sum);
    }
    const int first = item.row + group * kBlocks * p.block_rows;
    bool good = true;
    // One code that collects for all blocks.
#pragma unroll 1
    for (int b = 0; b < kBlocks; ++b) {
      barrier_among(1 + group, 128);  // what was there has been collected
      if (b == 0) {
        store_products<T, ROW>(p, sum[0], products);
      } else {
        store_products<T, ROW>(p, sum[1], products);
      }
      find_lines<ROW>(p, first + b * p.block_rows, lines);
      barrier_among(1 + group, 128);
      good &= collect<T, ROW>(p, item, lines, products);
    }
    if (!good) mend<T, ROW>(p, item, first, kBlocks * p.block_rows);
  });
}

template <class T, int ROW>
__device__ __forceinline__ void consume_mesh(const Params& p, StageRing& ring) {
  const int group = warpgroup_of_block();
  for_items(p, [&](const Item& item) {
    MeshSums<ROW> sum;
    using Pixels = std::conditional_t<kTiles[ROW].source == kMesh, PiecePixels<T>, WholePixels<T>>;
    multiply_mesh<T, ROW>(p, Pixels(p, item, group), ring, sum);
    const int first = item.row + group * (p.tile_rows / kGroups);
    if (!store_mesh<T, ROW>(p, item, first, sum)) mend_mesh<T, ROW>(p, item, first);
  });
}

template <class T, int ROW>
__global__ void __launch_bounds__(kThreads, 1)
    convt2d_spread_kernel(const __grid_constant__ Params p,
                          const __grid_constant__ CUtensorMap map) {
#ifdef CONVT2D_HAS_WGMMA
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32_t shared = shared_address(smem);
  StageRing ring{shared, shared + p.stages_at, p.stages, p.stage_bytes};
  if (threadIdx.x < p.stages) {
    // Warps' own stores, and what their threads, one of each or one of all have asked for.
    constexpr Source kSource = kTiles[ROW].source;
    const int asking = by_pieces(kSource)             ? 32 * kBringers
                       : kSource == kWholeMesh        ? 1
                       : kSource == kSets || p.copied ? kBringers
                                                      : 0;
    barrier_init(ring.barriers + threadIdx.x * 16, kBringers + asking);
    barrier_init(ring.barriers + threadIdx.x * 16 + 8, kConsumers / 32);
  }
  find_columns<ROW>(p, shared);
  // The margins of products, and what is between planes, stay.
#pragma unroll 1
  for (int at = threadIdx.x * 4; at < p.cleared_bytes; at += kThreads * 4)
    store_shared_4(shared + p.products_at + at, 0);
  fence_for_wgmma();  // and for the copy engine
  __syncthreads();
  if (threadIdx.x >= kConsumers) {
    fewer_registers<producer_registers(kTiles[ROW])>();
    bring<T, ROW>(p, map, shared, ring);
  } else {
    more_registers<consumer_registers(kTiles[ROW])>();
    if constexpr (meshes(kTiles[ROW].source)) {
      consume_mesh<T, ROW>(p, ring);
    } else {
      consume<T, ROW>(p, shared, ring);
    }
  }
#endif
}

}  // namespace convt2d::cuda::spread
