// A ring of buffers in shared memory that one side fills and the other reads.
#pragma once

#include <cstdint>

namespace convt2d::cuda {

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

// The next stage of a ring and the parity of its turn, where its addresses are known anyhow.
struct Ring {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void advance(int stages) {
    if (++stage == stages) stage = 0, parity ^= 1;
  }
  __device__ __forceinline__ void skip(int count, int stages) {
    const int to = stage + count, rounds = to / stages;
    stage = to - rounds * stages;
    parity ^= rounds & 1;
  }
};

}  // namespace convt2d::cuda
