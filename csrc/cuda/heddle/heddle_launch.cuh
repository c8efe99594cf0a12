// From a row of kTiles to its kernel; each heddle_<mode>.cu instantiates this for one way of multiplying.
#pragma once

#include "cuda/cuda_check.h"
#include "cuda/heddle/heddle_kernel.cuh"
#include "cuda/heddle/heddle_launch.h"
#include "cuda/heddle/heddle_plan.h"
#include "cuda/shared_memory.h"
#include "cuda/visit_row.h"

namespace convt2d::cuda::heddle {

// `row` is one from FIRST to END.
template <class M, int FIRST, int END>
void launch_rows(int row, const Params& params, void* stream) {
  visit_row<END - FIRST>(row - FIRST, [&](auto index) {
    constexpr int kRow = FIRST + decltype(index)::value;
    constexpr auto kernel = convt2d_heddle_grad_weight_kernel<M, kRow>;
    const int bytes = shared_bytes(params, kTiles[kRow]);
    allow_shared_memory<kernel>(bytes);
    kernel<<<static_cast<unsigned>(blocks_of(params)), threads(kTiles[kRow]), bytes,
             static_cast<cudaStream_t>(stream)>>>(params);
    check_launch("convt2d_heddle_grad_weight_kernel");
  });
}

}  // namespace convt2d::cuda::heddle
