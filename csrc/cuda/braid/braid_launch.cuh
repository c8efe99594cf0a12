// From a row of kTiles to its kernel, for one way of multiplying.
#pragma once

#include "cuda/braid/braid_kernel.cuh"
#include "cuda/braid/braid_launch.h"
#include "cuda/braid/braid_plan.h"
#include "cuda/cuda_check.h"
#include "cuda/shared_memory.h"
#include "cuda/visit_row.h"

namespace convt2d::cuda::braid {

template <class M>
void launch_rows(int row, const Params& params, const Maps& maps, void* stream) {
  visit_row<kTileCount>(row, [&](auto index) {
    constexpr auto kernel = convt2d_braid_grad_weight_kernel<M, decltype(index)::value>;
    const int bytes = shared_bytes(params, kTiles[decltype(index)::value]);
    allow_shared_memory<kernel>(bytes);
    kernel<<<static_cast<unsigned>(blocks_of(params)), kThreads, bytes,
             static_cast<cudaStream_t>(stream)>>>(params, maps);
    check_launch("convt2d_braid_grad_weight_kernel");
  });
}

}  // namespace convt2d::cuda::braid
