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
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = cluster.val.clusterDim.z = 1;
    cluster.val.clusterDim.y = params.ranks;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(blocks), params.ranks);
    config.blockDim = dim3(kThreads);
    config.dynamicSmemBytes = params.shared_bytes;
    config.stream = static_cast<cudaStream_t>(stream);
    config.attrs = &cluster;
    config.numAttrs = params.ranks > 1;
    CONVT2D_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, params, maps));
  });
}

}  // namespace convt2d::cuda::loom
