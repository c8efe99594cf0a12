// What all lanes of a warp have alike, said so that ptxas knows.
//
// A warp's number follows from threadIdx, so ptxas takes it, and all that follows from it, for each lane's own: descriptors of
// wgmma are then moved to uniform registers again for each instruction, and rings, addresses and bounds of loops fill registers
// that sums want. What comes from a shuffle of one lane it knows to be uniform.
//
// But a kernel has nothing of it where its lanes may part ways around the loops that would: a branch by threadIdx to what
// multiplies, an end of a loop or a return that is a lane's own, a call of a function that calls others (ptxas of CUDA 13.0).
#pragma once

namespace convt2d::cuda {

// All lanes of the warp call it.
template <class V>
__device__ __forceinline__ V uniform(V value) {
  return __shfl_sync(0xffffffff, value, 0);
}
__device__ __forceinline__ int warp_of_block() { return uniform(int(threadIdx.x) / 32); }
__device__ __forceinline__ int warpgroup_of_block() { return uniform(int(threadIdx.x) / 128); }

}  // namespace convt2d::cuda
