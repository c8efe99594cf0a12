// Launches of kernels that may start before the one ahead of them in the stream has ended (device/successor.cuh).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/cuda_check.h"

namespace convt2d::cuda {

template <class... Params>
void launch_after(bool early, void (*kernel)(Params...), int64_t blocks, int threads, int bytes,
                  void* stream, const Params&... params) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = static_cast<unsigned>(blocks);
  config.blockDim = static_cast<unsigned>(threads);
  config.dynamicSmemBytes = static_cast<size_t>(bytes);
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &attribute;
  config.numAttrs = early;
  CONVT2D_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, params...));
}

}  // namespace convt2d::cuda
