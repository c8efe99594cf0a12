// One lane of a warp, said so that ptxas knows: what it asks the copy engine for need not be asked lane by lane.
#pragma once

namespace convt2d::cuda {

// All lanes of the warp call it; it is true for one of them, always the same.
__device__ __forceinline__ bool elected() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  int mine;
  asm volatile(
      "{ .reg .pred mine;\n\t"
      "elect.sync _|mine, 0xffffffff;\n\t"
      "selp.b32 %0, 1, 0, mine; }"
      : "=r"(mine));
  return mine != 0;
#else
  return threadIdx.x % 32 == 0;
#endif
}

}  // namespace convt2d::cuda
