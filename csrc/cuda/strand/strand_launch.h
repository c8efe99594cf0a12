// strand's kernels, as the host calls them.
#pragma once

#include "cuda/strand/strand_config.h"

namespace convt2d::cuda::strand {

using Launch = void(int row, const Params& params, void* stream);
Launch launch_f16;    // strand_f16.cu
Launch launch_bf16;   // strand_bf16.cu
Launch launch_tf32;   // strand_tf32.cu
Launch launch_f32x3;  // strand_f32x3.cu

}  // namespace convt2d::cuda::strand
