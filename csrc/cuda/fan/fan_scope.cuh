// What a block works on.
#pragma once

#include "cuda/fan/fan_config.h"
#include "cuda/walker_scope.cuh"

namespace convt2d::cuda::fan {

using Scope = WalkerScope;

// The column of x that a patch starts at: the copy engine starts at multiples of 16 bytes.
__device__ __forceinline__ int first_column(const GatherParams& p, TileOrigin origin) {
  return origin.w + p.w.group[0].offset_low;
}

}  // namespace convt2d::cuda::fan
