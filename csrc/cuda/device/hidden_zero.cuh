// A zero for operands of wgmma that come from registers.
#pragma once

#include <cstdint>

namespace convt2d::cuda {

// Zero, since blocks have one row of threads, which the compiler does not know. Of a word that is only copied it would make the same
// register, and fetch the next one to what is being multiplied; of a copy with this it does not.
__device__ __forceinline__ uint32_t hidden_zero() { return threadIdx.y; }

}  // namespace convt2d::cuda
