// reed's kernels, as the host calls them.
#pragma once

#include <cuda.h>

#include "cuda/reed/reed_broad.h"
#include "cuda/reed/reed_held.h"
#include "cuda/reed/reed_lapped.h"

namespace convt2d::cuda::reed {

using Launch = void(int row, const Params& params, void* stream);
Launch launch_f16;    // reed_f16.cu
Launch launch_bf16;   // reed_bf16.cu
Launch launch_tf32;   // reed_tf32.cu
Launch launch_f32x3;  // reed_f32x3.cu

// Held tiles, as many blocks of so many bytes of shared memory.
using LaunchHeld = void(const Held& held, int64_t blocks, int shared_bytes, void* stream);
LaunchHeld launch_held_f16, launch_held_bf16, launch_held_tf32, launch_held_f32x3;
LaunchHeld launch_wide;  // reed_wide.cu

// Of so many warpgroups.
void launch_broad(DType dtype, int groups, const Held& held, int64_t blocks, int shared_bytes,
                  const CUtensorMap& weights, void* stream);

void launch_lapped(DType dtype, bool pixels, const Lapped& lapped, int64_t blocks,
                   const CUtensorMap& source, const CUtensorMap& weights, void* stream);

}  // namespace convt2d::cuda::reed
