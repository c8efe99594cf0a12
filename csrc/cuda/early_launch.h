// Launches of kernels that may start before the one ahead of them in the stream has ended (device/successor.cuh), or whose
// blocks must all be there at once (device/counters.cuh).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/cuda_check.h"

namespace convt2d::cuda {

template <class... Params>
void launch_as(cudaLaunchAttribute attribute, int attributes, void (*kernel)(Params...),
               int64_t blocks, int threads, int bytes, void* stream, const Params&... params) {
  cudaLaunchConfig_t config{};
  config.gridDim = static_cast<unsigned>(blocks);
  config.blockDim = static_cast<unsigned>(threads);
  config.dynamicSmemBytes = static_cast<size_t>(bytes);
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &attribute;
  config.numAttrs = static_cast<unsigned>(attributes);
  CONVT2D_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, params...));
}

template <class... Params>
void launch_after(bool early, void (*kernel)(Params...), int64_t blocks, int threads, int bytes,
                  void* stream, const Params&... params) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  launch_as(attribute, early, kernel, blocks, threads, bytes, stream, params...);
}

// All blocks together, or an error.
template <class... Params>
void launch_together(void (*kernel)(Params...), int64_t blocks, int threads, int bytes,
                     void* stream, const Params&... params) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = 1;
  launch_as(attribute, 1, kernel, blocks, threads, bytes, stream, params...);
}

}  // namespace convt2d::cuda
