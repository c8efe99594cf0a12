// The copy engine (TMA, sm_90): boxes of a tensor in global memory to shared memory, whole, with zeros for what
// lies outside the tensor. One thread asks; a barrier in shared memory counts the bytes that have arrived.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace convt2d::cuda {

// Arrives at a barrier whose phase ends when `bytes` more have been copied.
__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
#endif
}

// Asks for a map itself, which takes as long as any other memory.
__device__ __forceinline__ void prefetch_map(const CUtensorMap* map) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
#endif
}

// The box whose first element has these coordinates, the contiguous axis first. `map` is a kernel parameter.
__device__ __forceinline__ void copy_box(uint32_t shared, const CUtensorMap* map, uint32_t barrier,
                                         int a, int b, int c, int d) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(shared),
      "l"(map), "r"(barrier), "r"(a), "r"(b), "r"(c), "r"(d)
      : "memory");
#endif
}
__device__ __forceinline__ void copy_box(uint32_t shared, const CUtensorMap* map, uint32_t barrier,
                                         int a, int b, int c, int d, int e) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(shared),
      "l"(map), "r"(barrier), "r"(a), "r"(b), "r"(c), "r"(d), "r"(e)
      : "memory");
#endif
}

// Tells L2 that a box will be wanted.
__device__ __forceinline__ void announce_box(const CUtensorMap* map, int a, int b, int c, int d) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global.tile [%0, {%1, %2, %3, %4}];" ::"l"(map),
               "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
#endif
}

// So many bytes from one place to another, all three multiples of 16.
__device__ __forceinline__ void copy_run(uint32_t shared, const void* global, uint32_t bytes,
                                         uint32_t barrier) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared),
      "l"(global), "r"(bytes), "r"(barrier)
      : "memory");
#endif
}

// Tells L2 that so many bytes will be wanted, but for what is beside whole 16 bytes at their end.
__device__ __forceinline__ void announce(const void* global, int bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  const uint64_t first = reinterpret_cast<uint64_t>(global) & ~uint64_t{15};
  const uint32_t whole = (reinterpret_cast<uint64_t>(global) + bytes - first) & ~uint64_t{15};
  if (whole > 0)
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(first), "r"(whole) : "memory");
#endif
}

}  // namespace convt2d::cuda
