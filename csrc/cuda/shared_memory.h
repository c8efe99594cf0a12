// Lets a kernel use more than 48 KiB of shared memory: asked for once a kernel and device.
#pragma once

#include <atomic>

#include "cuda/cuda_check.h"

namespace convt2d::cuda {

template <auto KERNEL>
void allow_shared_memory(int bytes) {
  if (bytes <= 48 * 1024) return;
  static std::atomic<uint64_t> allowed{0};  // one bit a device
  int device = 0;
  CONVT2D_CUDA_CHECK(cudaGetDevice(&device));
  const uint64_t bit = uint64_t{1} << (device % 64);
  if (device < 64 && (allowed.load(std::memory_order_relaxed) & bit)) return;
  int most = 0;
  CONVT2D_CUDA_CHECK(
      cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  const void* kernel = reinterpret_cast<const void*>(KERNEL);
  CONVT2D_CUDA_CHECK(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most));
  CONVT2D_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                          cudaSharedmemCarveoutMaxShared));
  allowed.fetch_or(bit, std::memory_order_relaxed);
}

}  // namespace convt2d::cuda
