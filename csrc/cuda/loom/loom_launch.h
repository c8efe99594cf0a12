// loom's kernels, as the host calls them.
#pragma once

#include "cuda/loom/loom_plan.h"

namespace convt2d::cuda::loom {

using Launch = void(int row, const GatherParams& params, const TensorMaps& maps, void* stream);
Launch launch_tf32;    // loom_kernel.cu
Launch launch_strict;  // loom_kernel_strict.cu
Launch launch_f16;     // loom_kernel_f16.cu
Launch launch_bf16;    // loom_kernel_bf16.cu

}  // namespace convt2d::cuda::loom
