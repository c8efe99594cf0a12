// Counters in global memory, by which the blocks of a grid tell each other how far they are: for grids whose blocks are all
// there at once (cuda/early_launch.h, launch_together).
#pragma once

#include <cstdint>

namespace convt2d::cuda {

// What this thread wrote before, or saw written, is seen by whoever sees that all have counted.
__device__ __forceinline__ void count_up(uint32_t* counter) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
#endif
}

// The same of who has only read, and used what it read.
__device__ __forceinline__ void count_up_after_reading(uint32_t* counter) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("red.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
#endif
}

// Whether so many have counted: asked by a warp.
__device__ __forceinline__ bool all_counted(const uint32_t* counter, uint32_t count) {
  uint32_t number = 0;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(number) : "l"(counter) : "memory");
#endif
  return __all_sync(~0u, number >= count);
}

// What lies so many bytes behind the start of a block's memory.
template <class T>
__device__ __forceinline__ T* block_memory(unsigned char* smem, int at) {
  return reinterpret_cast<T*>(smem + at);
}

// Between stores to global memory and the copy engine's reading it: on both sides of the counter.
__device__ __forceinline__ void fence_for_copy_engine() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.global;" ::: "memory");
#endif
}

}  // namespace convt2d::cuda
