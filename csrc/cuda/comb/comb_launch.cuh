// From a row of kTiles to its kernel; each comb_<mode>.cu instantiates this for one way of multiplying.
#pragma once

#include "cuda/comb/comb_kernel.cuh"
#include "cuda/comb/comb_launch.h"
#include "cuda/comb/comb_lines.cuh"
#include "cuda/comb/comb_plan.h"
#include "cuda/cuda_check.h"
#include "cuda/shared_memory.h"
#include "cuda/visit_row.h"

namespace convt2d::cuda::comb {

// `row` is one of the first ROWS.
template <class M, int ROWS>
void launch_rows(int row, const Params& params, void* stream) {
  visit_row<ROWS>(row, [&](auto index) {
    constexpr int kRow = decltype(index)::value;
    constexpr auto kernel = convt2d_comb_grad_weight_kernel<M, kRow>;
    const int bytes = shared_bytes(params, kTiles[kRow], sizeof(typename M::Element));
    allow_shared_memory<kernel>(bytes);
    kernel<<<static_cast<unsigned>(blocks_of(params)), kThreads, bytes,
             static_cast<cudaStream_t>(stream)>>>(params);
    check_launch("convt2d_comb_grad_weight_kernel");
  });
}

// `tile` is one of kLineTileCount.
template <class M>
void launch_line_tiles(int tile, const LineParams& params, void* stream) {
  visit_row<kLineTileCount>(tile, [&](auto index) {
    constexpr auto kernel = convt2d_comb_lines_kernel<M, decltype(index)::value>;
    allow_shared_memory<kernel>(params.shared_bytes);
    kernel<<<static_cast<unsigned>(line_blocks_of(params)), kThreads, params.shared_bytes,
             static_cast<cudaStream_t>(stream)>>>(params);
    check_launch("convt2d_comb_lines_kernel");
  });
}

}  // namespace convt2d::cuda::comb
