// From a row of kTiles to its kernel, for one way of multiplying.
#pragma once

#include "cuda/cuda_check.h"
#include "cuda/quilt/quilt_kernel.cuh"
#include "cuda/quilt/quilt_launch.h"
#include "cuda/quilt/quilt_plan.h"
#include "cuda/shared_memory.h"
#include "cuda/visit_row.h"

namespace convt2d::cuda::quilt {

// `row` is one of FIRST to END.
template <class M, int FIRST, int END>
void launch_rows(int row, const Params& params, const Maps& maps, void* stream) {
  visit_row<END - FIRST>(row - FIRST, [&](auto index) {
    constexpr auto kernel = convt2d_quilt_grad_weight_kernel<M, FIRST + decltype(index)::value>;
    const int bytes = shared_bytes(params, kTiles[FIRST + decltype(index)::value]);
    allow_shared_memory<kernel>(bytes);
    kernel<<<static_cast<unsigned>(blocks_of(params)), kThreads, bytes,
             static_cast<cudaStream_t>(stream)>>>(params, maps);
    check_launch("convt2d_quilt_grad_weight_kernel");
  });
}

}  // namespace convt2d::cuda::quilt
