// hank's kernels, as the host calls them.
#pragma once

#include "cuda/hank/hank_config.h"

namespace convt2d::cuda::hank {

using Launch = void(int row, const Params& params, const Maps& maps, void* stream);
Launch launch_f16;   // hank_f16.cu
Launch launch_bf16;  // hank_bf16.cu
Launch launch_tf32;  // hank_tf32.cu

}  // namespace convt2d::cuda::hank
