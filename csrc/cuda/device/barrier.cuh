// Barriers in shared memory (mbarrier) for threads that hand buffers to each other, and named barriers
// for some of a block's warps.
#pragma once

#include <cstdint>

namespace convt2d::cuda {

// A phase of the barrier at `address` ends when `count` threads have arrived.
__device__ __forceinline__ void barrier_init(uint32_t address, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address), "r"(count) : "memory");
}

__device__ __forceinline__ void barrier_arrive(uint32_t address) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address) : "memory");
#endif
}

// Waits until the phase of this parity has ended; of a fresh barrier, that of parity 1 has.
__device__ __forceinline__ void barrier_wait(uint32_t address, uint32_t parity) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "{ .reg .pred done;\n\t"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n\t"
      "@!done bra again; }" ::"r"(address),
      "r"(parity)
      : "memory");
#endif
}

// A number in shared memory that grows, and waiting until it is as large: for who goes first, since it orders nothing else.
__device__ __forceinline__ void raise_number(uint32_t address, uint32_t number) {
  asm volatile("st.volatile.shared.b32 [%0], %1;" ::"r"(address), "r"(number) : "memory");
}
__device__ __forceinline__ void wait_for_number(uint32_t address, uint32_t number) {
  asm volatile(
      "{ .reg .pred less;\n\t"
      ".reg .b32 now;\n\t"
      "again: ld.volatile.shared.b32 now, [%0];\n\t"
      "setp.lt.u32 less, now, %1;\n\t"
      "@less bra again; }" ::"r"(address),
      "r"(number)
      : "memory");
}

// All `threads` threads that name the same barrier (1 to 15; 0 is __syncthreads).
__device__ __forceinline__ void barrier_among(int name, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(name), "r"(threads) : "memory");
}

// The same without waiting: what this thread has written is there for those who wait.
__device__ __forceinline__ void barrier_join(int name, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(name), "r"(threads) : "memory");
}

// Waits for all of them, and tells whether `good` holds for all of them.
__device__ __forceinline__ bool barrier_all(int name, int threads, bool good) {
  int all;
  asm volatile(
      "{ .reg .pred mine, all;\n\t"
      "setp.ne.b32 mine, %1, 0;\n\t"
      "bar.red.and.pred all, %2, %3, mine;\n\t"
      "selp.b32 %0, 1, 0, all; }"
      : "=r"(all)
      : "r"(int(good)), "r"(name), "r"(threads)
      : "memory");
  return all != 0;
}

}  // namespace convt2d::cuda
