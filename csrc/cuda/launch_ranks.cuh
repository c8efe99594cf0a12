// Launches of clusters.
#pragma once

#include <cstdint>

#include "cuda/cuda_check.h"

namespace convt2d::cuda {

// A grid of tiles, each a cluster of `ranks` blocks.
template <class Kernel, class... Parameters>
void launch_ranks(Kernel kernel, int64_t tiles, int ranks, int threads, int bytes, void* stream,
                  const Parameters&... parameters) {
  cudaLaunchAttribute cluster = {};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = cluster.val.clusterDim.z = 1;
  cluster.val.clusterDim.y = ranks;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(tiles), ranks);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &cluster;
  config.numAttrs = ranks > 1;
  CONVT2D_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, parameters...));
}

}  // namespace convt2d::cuda
