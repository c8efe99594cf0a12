// The copy engine's way back: boxes from shared memory to a tensor in global memory (tensor_copy.cuh).
#pragma once

#include <cuda.h>

#include <cstdint>

namespace convt2d::cuda {

// A box of what close_boxes() makes one of a thread's boxes.
__device__ __forceinline__ void ask_box(const CUtensorMap* map, uint32_t shared, int a, int b,
                                        int c, int d, int e) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5, %6}], "
      "[%1];" ::"l"(map),
      "r"(shared), "r"(a), "r"(b), "r"(c), "r"(d), "r"(e)
      : "memory");
#endif
}
__device__ __forceinline__ void close_boxes() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#endif
}

// A box from shared memory to global, but for what lies behind the tensor's end; one that starts before it is an illegal
// instruction (H200, 2026-11-29). What other threads wrote it sees after their
// fence (device/wgmma.cuh). Boxes of this thread: what they were read from may be written again, or they are there.
__device__ __forceinline__ void store_box(const CUtensorMap* map, uint32_t shared, int a, int b,
                                          int c, int d, int e) {
  ask_box(map, shared, a, b, c, d, e);
  close_boxes();
}
// A run of memory likewise, of whole 16 bytes at multiples of these.
__device__ __forceinline__ void store_bytes(void* to, uint32_t shared, int bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n\t"
      "cp.async.bulk.commit_group;" ::"l"(to),
      "r"(shared), "r"(bytes)
      : "memory");
#endif
}
__device__ __forceinline__ void stored_boxes_read() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
#endif
}
__device__ __forceinline__ void stored_boxes_there() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.wait_group 0;\n\tfence.proxy.async;" ::: "memory");
#endif
}

// The same of all but the last so many.
template <int LAST>
__device__ __forceinline__ void stored_boxes_read_but() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(LAST) : "memory");
#endif
}
template <int LAST>
__device__ __forceinline__ void stored_boxes_there_but() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.wait_group %0;\n\tfence.proxy.async;" ::"n"(LAST) : "memory");
#endif
}

}  // namespace convt2d::cuda
