// The pleat kernel; pleat_config.h draws the GEMM.
//
// One thread asks the copy engine for the chunks of a block's tiles, in a ring of stages: `full` ends a phase when a stage has
// arrived, `empty` when all warpgroups have multiplied it. These add up and store on their own; the ring lets one be ahead of others.
// Nothing is multiplied that does not exist but for pixels below an image, whose products are left out.
#pragma once

#include "cuda/device/mma.cuh"
#include "cuda/pleat/pleat_flat.cuh"
#include "cuda/pleat/pleat_rows.cuh"

namespace convt2d::cuda::pleat {

template <class T, int ROW>
__global__ void __launch_bounds__(kThreads, 1)
    convt2d_pleat_kernel(const __grid_constant__ Params p, const __grid_constant__ Maps maps) {
#ifdef CONVT2D_HAS_WGMMA
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32_t shared = shared_address(smem);
  if (threadIdx.x < p.stages) {
    barrier_init(shared + threadIdx.x * 16, 1);
    barrier_init(shared + threadIdx.x * 16 + 8, kConsumers / 32);
  }
  if (threadIdx.x == kConsumers) {
    prefetch_map(&maps.x);
    prefetch_map(&maps.w);
  }
  fence_for_wgmma();  // and for the copy engine
  __syncthreads();
  if (warp_of_block() >= kConsumers / 32) {
    if (threadIdx.x == kConsumers) bring<ROW>(p, maps, shared);
  } else if constexpr (is_flat(ROW)) {
    consume_flat<T, ROW>(p, shared);
  } else {
    consume<T, ROW>(p, shared);
  }
#endif
}

}  // namespace convt2d::cuda::pleat
