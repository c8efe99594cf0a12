// reed's kernels, as the host calls them.
#pragma once

#include "cuda/reed/reed_config.h"

namespace convt2d::cuda::reed {

using Launch = void(int row, const Params& params, void* stream);
Launch launch_f16;    // reed_f16.cu
Launch launch_bf16;   // reed_bf16.cu
Launch launch_tf32;   // reed_tf32.cu
Launch launch_f32x3;  // reed_f32x3.cu

}  // namespace convt2d::cuda::reed
