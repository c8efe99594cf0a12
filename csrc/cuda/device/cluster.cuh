// Blocks of a cluster (sm_90 and up) and each other's shared memory. Elsewhere a block is alone, and nothing
// here is reached.
#pragma once

#include <cstdint>

namespace convt2d::cuda {

// What a block wrote before it arrived is seen by every block of the cluster that has waited. All threads of
// all blocks take part in both.
__device__ __forceinline__ void cluster_arrive() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}

__device__ __forceinline__ void cluster_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// The same of a block that has only read, and used what it read: nothing it wrote is waited for.
__device__ __forceinline__ void cluster_arrive_as_reader() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}

// Where in the cluster the block of that rank has what is at `shared` here.
__device__ __forceinline__ uint32_t place_of_rank(uint32_t shared, int rank) {
  uint32_t there = shared;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared), "r"(rank));
#endif
  return there;
}

__device__ __forceinline__ float4 load_of_rank(uint32_t place) {
  float4 value = {};
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "r"(place)
               : "memory");
#endif
  return value;
}

// Barriers that were made here are there for the cluster's other blocks, once these have waited for this one: as a reader
// arrives, which takes no time (to arrive as a writer waits for all of memory).
__device__ __forceinline__ void show_barriers_to_cluster() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

// Four words to a place of a block of the cluster, whose barrier counts the bytes that have come.
__device__ __forceinline__ void send_to_rank(uint32_t place, const uint32_t (&word)[4],
                                             uint32_t barrier) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(place),
      "r"(word[0]), "r"(word[1]), "r"(word[2]), "r"(word[3]), "r"(barrier)
      : "memory");
#endif
}

}  // namespace convt2d::cuda
