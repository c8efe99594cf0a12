// From a row of kWeightTiles to its kernel; each narrow_weight_<mode>.cu instantiates this for its types.
#pragma once

#include "cuda/cuda_check.h"
#include "cuda/narrow/narrow_weight.cuh"
#include "cuda/shared_memory.h"
#include "cuda/visit_row.h"

namespace convt2d::cuda::narrow {

// `row` is one from FIRST to END.
template <class M, int FIRST, int END>
void launch_weight_rows(int row, const WeightParams& params, void* stream) {
  visit_row<END - FIRST>(row - FIRST, [&](auto index) {
    constexpr int kRow = FIRST + decltype(index)::value;
    constexpr auto kernel = convt2d_narrow_grad_weight_kernel<M, kRow>;
    allow_shared_memory<kernel>(params.shared_bytes);
    kernel<<<static_cast<unsigned>(weight_blocks(params)), kWeightThreads, params.shared_bytes,
             static_cast<cudaStream_t>(stream)>>>(params);
    check_launch("convt2d_narrow_grad_weight_kernel");
  });
}

}  // namespace convt2d::cuda::narrow
