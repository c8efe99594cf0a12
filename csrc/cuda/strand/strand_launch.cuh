// From a row of kTiles to its kernel; each strand_<mode>.cu instantiates this for one way of multiplying.
#pragma once

#include "cuda/cuda_check.h"
#include "cuda/shared_memory.h"
#include "cuda/strand/strand_kernel.cuh"
#include "cuda/strand/strand_launch.h"
#include "cuda/strand/strand_plan.h"
#include "cuda/visit_row.h"

namespace convt2d::cuda::strand {

// `row` is one of the first ROWS.
template <class M, int ROWS>
void launch_rows(int row, const Params& params, void* stream) {
  visit_row<ROWS>(row, [&](auto index) {
    constexpr int kRow = decltype(index)::value;
    constexpr auto kernel = convt2d_strand_kernel<M, kRow>;
    constexpr int kBytes = shared_bytes(kTiles[kRow]);
    allow_shared_memory<kernel>(kBytes);
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = cluster.val.clusterDim.z = 1;
    cluster.val.clusterDim.y = params.ranks;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(tiles_of(params)), params.ranks);
    config.blockDim = dim3(kThreads);
    config.dynamicSmemBytes = kBytes;
    config.stream = static_cast<cudaStream_t>(stream);
    config.attrs = &cluster;
    config.numAttrs = params.ranks > 1;
    CONVT2D_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, params));
  });
}

}  // namespace convt2d::cuda::strand
