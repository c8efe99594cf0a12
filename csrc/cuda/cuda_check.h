// A failed CUDA call becomes an exception that names the call, the error, and what to do about it.
#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace convt2d::cuda {

inline const char* hint(cudaError_t error) {
  switch (error) {
    case cudaErrorInsufficientDriver:
      return "the NVIDIA driver is missing, or older than the CUDA version this wheel was built "
             "with";
    case cudaErrorNoDevice:
      return "the driver sees no GPU: look at nvidia-smi and CUDA_VISIBLE_DEVICES";
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidDeviceFunction:
      return "this build has no code for this GPU: rebuild with its TORCH_CUDA_ARCH_LIST";
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorLaunchFailure:
      return "an earlier kernel failed: CUDA_LAUNCH_BLOCKING=1 shows which one";
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidValue:
    case cudaErrorLaunchOutOfResources:
      return "a plan asked for more than this GPU has; please report it with convt2d_ext.explain()";
    default:
      return nullptr;
  }
}

inline void check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  std::string message = std::string("convt2d: ") + call + " failed: " + cudaGetErrorName(error) +
                        ", " + cudaGetErrorString(error);
  if (const char* advice = hint(error)) message += std::string(" (") + advice + ")";
  throw std::runtime_error(message);
}

// Right after <<<...>>>: the launch itself, not the kernel's work, which ends later.
inline void check_launch(const char* kernel) { check(cudaGetLastError(), kernel); }

}  // namespace convt2d::cuda

#define CONVT2D_CUDA_CHECK(call) ::convt2d::cuda::check((call), #call)
