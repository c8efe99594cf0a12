// Shared memory by address: asynchronous copies from global memory (sm_80 and up), loads, stores. A copy
// with `valid` false writes zeros and reads nothing; its address must be a legal one all the same.
#pragma once

#include <cstdint>

namespace convt2d::cuda {

__device__ __forceinline__ void copy_async_16(uint32_t shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
               "r"(valid ? 16 : 0)
               : "memory");
}

// The same, of which the first `bytes` are there and the others zeros.
__device__ __forceinline__ void copy_async_16_part(uint32_t shared, const void* global, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
               "r"(bytes)
               : "memory");
}

// All of them; the 256 bytes around them come to L2.
__device__ __forceinline__ void copy_async_16_of_many(uint32_t shared, const void* global,
                                                      bool valid) {
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
               "r"(valid ? 16 : 0)
               : "memory");
}

__device__ __forceinline__ void copy_async_4(uint32_t shared, const void* global, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared), "l"(global),
               "r"(valid ? 4 : 0)
               : "memory");
}

// Of 16 (the 256 bytes around it come to L2), 8 or 4 bytes.
template <int BYTES>
__device__ __forceinline__ void copy_async(uint32_t shared, const void* global, bool valid) {
  if constexpr (BYTES == 16) {
    copy_async_16_of_many(shared, global, valid);
  } else {
    asm volatile("cp.async.ca.shared.global.L2::256B [%0], [%1], %2, %3;" ::"r"(shared),
                 "l"(global), "n"(BYTES), "r"(valid ? BYTES : 0)
                 : "memory");
  }
}

// Closes a group of copies of this thread.
__device__ __forceinline__ void copy_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most `open` (0 to 2) of this thread's groups have not arrived.
__device__ __forceinline__ void copy_async_wait(int open) {
  if (open == 0) {
    asm volatile("cp.async.wait_group 0;" ::: "memory");
  } else if (open == 1) {
    asm volatile("cp.async.wait_group 1;" ::: "memory");
  } else {
    asm volatile("cp.async.wait_group 2;" ::: "memory");
  }
}

// The same of a number known to the compiler, which may be any.
template <int OPEN>
__device__ __forceinline__ void copy_async_wait_for() {
  asm volatile("cp.async.wait_group %0;" ::"n"(OPEN) : "memory");
}

// This thread arrives at a barrier (barrier.cuh) when all copies it has asked for are there.
__device__ __forceinline__ void copy_async_arrive(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ uint32_t load_shared_4(uint32_t shared) {
  uint32_t word;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(shared) : "memory");
  return word;
}

__device__ __forceinline__ void load_shared_8(uint32_t shared, uint32_t (&word)[2]) {
  asm volatile("ld.shared.v2.b32 {%0,%1}, [%2];"
               : "=r"(word[0]), "=r"(word[1])
               : "r"(shared)
               : "memory");
}

__device__ __forceinline__ void load_shared_16(uint32_t shared, uint32_t (&word)[4]) {
  asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
               : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
               : "r"(shared)
               : "memory");
}

// By the type of what is there.
template <class T>
__device__ __forceinline__ T load_shared(uint32_t shared);
template <>
__device__ __forceinline__ float load_shared<float>(uint32_t shared) {
  float value;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(shared) : "memory");
  return value;
}
template <>
__device__ __forceinline__ uint32_t load_shared<uint32_t>(uint32_t shared) {
  return load_shared_4(shared);
}
template <>
__device__ __forceinline__ unsigned short load_shared<unsigned short>(uint32_t shared) {
  unsigned short value;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(value) : "r"(shared) : "memory");
  return value;
}

__device__ __forceinline__ void store_shared_2(uint32_t shared, unsigned short half) {
  asm volatile("st.shared.b16 [%0], %1;" ::"r"(shared), "h"(half) : "memory");
}
__device__ __forceinline__ void store_shared_4(uint32_t shared, uint32_t word) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(shared), "r"(word) : "memory");
}

// A number that is one of a tensor core's sums: as a word it would make all of them words for the compiler, which then
// waits for a multiplication to move them (seen in nvcc 13.0).
__device__ __forceinline__ void store_shared_sum(uint32_t shared, float sum) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(shared), "f"(sum) : "memory");
}
__device__ __forceinline__ void store_shared_sums(uint32_t shared, float a, float b) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(shared), "f"(a), "f"(b) : "memory");
}

__device__ __forceinline__ void store_shared_16(uint32_t shared, const uint32_t (&word)[4]) {
  asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(shared), "r"(word[0]), "r"(word[1]),
               "r"(word[2]), "r"(word[3])
               : "memory");
}

// As many words as there are, at a multiple of their size or of 16 bytes.
template <int WORDS>
__device__ __forceinline__ void store_shared(uint32_t shared, const uint32_t (&word)[WORDS]) {
  if constexpr (WORDS == 1) {
    store_shared_4(shared, word[0]);
  } else if constexpr (WORDS == 2) {
    asm volatile("st.shared.v2.b32 [%0], {%1,%2};" ::"r"(shared), "r"(word[0]), "r"(word[1])
                 : "memory");
  } else {
#pragma unroll
    for (int i = 0; i < WORDS; i += 4)
      store_shared_16(shared + i * 4, {word[i], word[i + 1], word[i + 2], word[i + 3]});
  }
}

// Four tiles of 8 x 8 16-bit numbers, rows of 16 bytes whose addresses lanes 8 i to 8 i + 7 give for tile i; a lane
// gets what store_turned() wants.
__device__ __forceinline__ void load_tiles(uint32_t shared, uint32_t (&word)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
               : "r"(shared)
               : "memory");
}

// Four tiles of 8 x 8 16-bit numbers, turned. Of tile i, lane l has numbers 2 (l % 4) and the next of row
// l / 4; they end up in column l / 4 of the rows of 16 bytes whose addresses lanes 8 i to 8 i + 7 give.
__device__ __forceinline__ void store_turned(uint32_t shared, const uint32_t (&word)[4]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(shared),
               "r"(word[0]), "r"(word[1]), "r"(word[2]), "r"(word[3])
               : "memory");
#endif
}

// The same, not turned: rows of tile i go where lanes 8 i to 8 i + 7 say.
__device__ __forceinline__ void store_tiles(uint32_t shared, const uint32_t (&word)[4]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(shared),
               "r"(word[0]), "r"(word[1]), "r"(word[2]), "r"(word[3])
               : "memory");
#endif
}

}  // namespace convt2d::cuda
