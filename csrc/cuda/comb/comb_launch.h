// comb's kernels, as the host calls them.
#pragma once

#include "cuda/comb/comb_config.h"

namespace convt2d::cuda::comb {

using Launch = void(int row, const Params& params, void* stream);
Launch launch_f16;    // comb_f16.cu
Launch launch_bf16;   // comb_bf16.cu
Launch launch_tf32;   // comb_tf32.cu
Launch launch_f32x3;  // comb_f32x3.cu

}  // namespace convt2d::cuda::comb
