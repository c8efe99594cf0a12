// From a row of kTiles to its kernel; each hank_<mode>.cu instantiates this for one way of multiplying.
#pragma once

#include "cuda/cuda_check.h"
#include "cuda/hank/hank_kernel.cuh"
#include "cuda/hank/hank_launch.h"
#include "cuda/hank/hank_plan.h"
#include "cuda/shared_memory.h"
#include "cuda/visit_row.h"

namespace convt2d::cuda::hank {

template <class M>
void launch_rows(int row, const Params& params, const Maps& maps, void* stream) {
  visit_row<kTileCount>(row, [&](auto index) {
    constexpr int kRow = decltype(index)::value;
    constexpr auto kernel = convt2d_hank_grad_weight_kernel<M, kRow>;
    const int bytes = shared_bytes(params, kTiles[kRow]);
    allow_shared_memory<kernel>(bytes);
    kernel<<<static_cast<unsigned>(blocks_of(params)), kThreads, bytes,
             static_cast<cudaStream_t>(stream)>>>(params, maps);
    check_launch("convt2d_hank_grad_weight_kernel");
  });
}

}  // namespace convt2d::cuda::hank
