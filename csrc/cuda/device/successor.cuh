// A kernel that starts before the one ahead of it in the stream has ended (programmatic dependent launch, sm_90): its
// blocks take their places as those of the other leave, and wait there for its results.
#pragma once

namespace convt2d::cuda {

// The successor may be launched as soon as all blocks have said so.
__device__ __forceinline__ void let_successor_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Until all that the predecessor has written is visible; at once if there is none.
__device__ __forceinline__ void wait_for_predecessor() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace convt2d::cuda
