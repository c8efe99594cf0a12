// From a row of kTiles to its kernel, for one way of multiplying.
#pragma once

#include "cuda/cuda_check.h"
#include "cuda/shared_memory.h"
#include "cuda/treadle/treadle_kernel.cuh"
#include "cuda/treadle/treadle_launch.h"
#include "cuda/treadle/treadle_plan.h"
#include "cuda/visit_row.h"

namespace convt2d::cuda::treadle {

// `row` is one of FIRST to END.
template <class M, int FIRST, int END, bool CHANNELS_LAST>
void launch_rows(int row, const Params& params, const CUtensorMap& map, void* stream) {
  visit_row<END - FIRST>(row - FIRST, [&](auto index) {
    constexpr int kRow = FIRST + decltype(index)::value;
    constexpr auto kernel = convt2d_treadle_grad_weight_kernel<M, kRow, CHANNELS_LAST>;
    constexpr int kBytes = shared_bytes(kTiles[kRow], CHANNELS_LAST);
    allow_shared_memory<kernel>(kBytes);
    kernel<<<static_cast<unsigned>(blocks_of(params)), kThreads, kBytes,
             static_cast<cudaStream_t>(stream)>>>(params, map);
    check_launch("convt2d_treadle_grad_weight_kernel");
  });
}

}  // namespace convt2d::cuda::treadle
