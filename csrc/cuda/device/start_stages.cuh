// The barriers of a ring of stages.
#pragma once

#include "cuda/device/barrier.cuh"

namespace convt2d::cuda {

// Of each stage `full` and `empty` (stage_ring.cuh), and how many arrive there, by a thread a stage.
__device__ __forceinline__ void start_stages(uint32_t barriers, int stages, uint32_t full,
                                             uint32_t empty) {
  if (threadIdx.x < stages) {
    barrier_init(barriers + threadIdx.x * 16, full);
    barrier_init(barriers + threadIdx.x * 16 + 8, empty);
  }
}

}  // namespace convt2d::cuda
