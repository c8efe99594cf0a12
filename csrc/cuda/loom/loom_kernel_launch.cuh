// Rows of kTiles, each a kernel.
#pragma once

#include <utility>

#include "cuda/cuda_check.h"
#include "cuda/loom/loom_kernel.cuh"
#include "cuda/loom/loom_launch.h"
#include "cuda/shared_memory.h"
#include "cuda/visit_row.h"

namespace convt2d::cuda::loom {

// COUNT rows from FIRST on.
template <class T, int FIRST, int COUNT>
void launch_rows(int row, const GatherParams& params, const TensorMaps& maps, void* stream) {
  const int64_t blocks = blocks_of(params);
  visit_row<COUNT>(row - FIRST, [&](auto index) {
    constexpr auto kernel = convt2d_loom_kernel<T, FIRST + decltype(index)::value>;
    allow_shared_memory<kernel>(params.shared_bytes);
    kernel<<<static_cast<unsigned>(blocks), kThreads, params.shared_bytes,
             static_cast<cudaStream_t>(stream)>>>(params, maps);
    check_launch("convt2d_loom_kernel");
  });
}

}  // namespace convt2d::cuda::loom
