// What hopper's two kernels of grad_weight share: the ring of stages, and sums before the first product.
#pragma once

#include <cstdint>

namespace convt2d::cuda::hopper {

// The ring, as one of its two sides goes round it.
struct StageRing {
  uint32_t barriers, stages;  // shared addresses; a stage's barriers are `full` and `empty`
  int count, bytes;
  int index = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ uint32_t full() const { return barriers + index * 16; }
  __device__ __forceinline__ uint32_t empty() const { return full() + 8; }
  __device__ __forceinline__ uint32_t stage() const { return stages + index * bytes; }
  __device__ __forceinline__ void advance() {
    if (++index == count) index = 0, parity ^= 1;
  }
};

template <int INSTRUCTIONS, int COUNT>
__device__ __forceinline__ void clear(float (&sum)[INSTRUCTIONS][COUNT]) {
#pragma unroll
  for (int i = 0; i < INSTRUCTIONS; ++i)
#pragma unroll
    for (int j = 0; j < COUNT; ++j) sum[i][j] = 0.f;
}

}  // namespace convt2d::cuda::hopper
