// The kernel of slide's strided tiles; slide_strided.h draws them.
//
// Eight warps turn, and ask the copy engine for what they turn next; two warpgroups multiply. Everybody goes round the ring of
// slots in the same order, and gives back what is not his at once; while one warpgroup stores the other multiplies.
#pragma once

#include "cuda/device/barrier.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/slide/slide_rows.cuh"
#include "cuda/slide/slide_strided.h"
#include "cuda/slide/slide_strided_store.cuh"

namespace convt2d::cuda::slide {

__device__ __forceinline__ bool row_used(const StridedParams& p, int row) {
  return p.used_rows >> row % p.step_h & 1;
}

// A warpgroup that multiplies, on its way round the ring.
struct SlotReader {
  StageRing ring;
  int row;        // of the stretch
  uint32_t left;  // `empty` of the slot that was left last, but is maybe being read

  __device__ __forceinline__ void release() {
    if (threadIdx.x % 32 == 0 && left) barrier_arrive(left);
    left = 0;
  }
  // Gives back the rows before `to`, which others read.
  __device__ __forceinline__ void pass(const StridedParams& p, int to) {
    for (; row < to; ++row) {
      if (!row_used(p, row)) continue;
      for (int block = 0; block < p.depths; ++block, ring.advance()) {
        barrier_wait(ring.full(), ring.parity);  // or it would be given back before it is there
        __syncwarp();
        if (threadIdx.x % 32 == 0) barrier_arrive(ring.empty());
      }
    }
  }
};

// The products of a row of the result, whose first row of dY is `first` of the stretch. `weights`: of the first tap.
template <class T, int WIDTH, int SLICES>
__device__ __forceinline__ void multiply_strided(const StridedParams& p, SlotReader& reader,
                                                 int first, uint32_t weights,
                                                 StridedSums<WIDTH>& sum) {
  const int pixel_bytes = p.depth * 2;
  const uint64_t w_layout = operand_layout(p.octet_bytes, 8 * 16),
                 x_layout = swizzled_layout(pixel_bytes, 8 * pixel_bytes);
  const uint32_t w_step = p.octet_bytes * 2 >> 4;
#pragma unroll 1
  for (int i = 0; i < p.kernel_h; ++i, weights += p.kernel_w * p.tap_bytes) {
    reader.pass(p, first + i * p.tap_rows);
#pragma unroll 1
    for (int block = 0; block < p.depths; ++block) {
      const uint32_t slot = reader.ring.stage(),
                     taps = weights + block * SLICES * 2 * p.octet_bytes;
      const auto multiply = [&](int j) {
        const uint64_t a = operand(w_layout, taps + j * p.tap_bytes),
                       b = operand(x_layout, slot + p.column[j]);
        wgmma_fence();
#pragma unroll
        for (int slice = 0; slice < SLICES; ++slice)
          Wgmma<T, WIDTH>::add(sum, advance(a, slice * w_step), advance(b, slice * 2));
        wgmma_commit();
      };
      barrier_wait(reader.ring.full(), reader.ring.parity);
      multiply(0);
      wgmma_wait<1>();
      reader.release();
#pragma unroll 1
      for (int j = 1; j < p.kernel_w; ++j) multiply(j);
      reader.left = reader.ring.empty();
      reader.ring.advance();
    }
    ++reader.row;
  }
  wgmma_wait<0>();
  finished(sum);
  reader.release();
}

template <class T, int WIDTH>
__device__ __forceinline__ void consume_strided(const StridedParams& p, const Scope& at,
                                                uint32_t shared) {
  const int group = warpgroup_of_block(), groups = row_groups(p), set = p.sets > 1 ? group : 0,
            turn = p.sets > 1 ? 0 : group;
  const uint32_t staging =
                     shared + p.staging_at + threadIdx.x / 32 * (kWarpChannels * kStridedPitch),
                 weights = shared + p.weights_at + set * (kRows * 16);
  const int channel = at.column_tile * tile_channels(p) + set * kRows + threadIdx.x / 32 % 4 * 16;
  SlotReader reader{{shared, shared + p.slots_at, p.slots, p.slot_bytes}, 0, 0};
  Stretches walk(p, at);
  const int start = walk.step - walk.now.count;
  for (; walk.now.count > 0; walk.advance(p)) {
    const Stretch& stretch = walk.now;
    reader.row = 0;
    // Turns go on from stretch to stretch.
    const int number = walk.step - stretch.count - start;
#pragma unroll 1
    for (int step = (turn + number) % groups; step < stretch.count; step += groups) {
      StridedSums<WIDTH> sum;
#pragma unroll
      for (int i = 0; i < WIDTH / 2; ++i) sum[i] = 0;
      const int first = step * p.step_h;
      if (p.depth == 64) {
        multiply_strided<T, WIDTH, 4>(p, reader, first, weights, sum);
      } else if (p.depth == 32) {
        multiply_strided<T, WIDTH, 2>(p, reader, first, weights, sum);
      } else {
        multiply_strided<T, WIDTH, 1>(p, reader, first, weights, sum);
      }
      store_strided<T, WIDTH>(p, at.group, channel, stretch, stretch.first + step, sum, staging);
    }
    reader.pass(p, rows_of_steps(p, stretch.count));
  }
}

template <class T, int WIDTH>
__global__ void __launch_bounds__(kRowThreads, 1)
    convt2d_slide_strided_kernel(const __grid_constant__ StridedParams p,
                                 const __grid_constant__ CUtensorMap map) {
#ifdef CONVT2D_HAS_WGMMA
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32_t shared = shared_address(smem);
  const Scope at = scope_of(p);
  prepare_rows<T>(p, at, shared);
  fence_for_wgmma();  // and for the copy engine
  __syncthreads();
  if (warp_of_block() >= kConsumers / 32) {
    fewer_registers<kStridedTurnerRegisters>();
    turn_rows(p, map, at, shared);
  } else {
    more_registers<kStridedRegisters>();
    consume_strided<T, WIDTH>(p, at, shared);
  }
#endif
}

}  // namespace convt2d::cuda::slide
