// dimity's kernels, as the host calls them.
#pragma once

#include "cuda/dimity/dimity_config.h"

namespace convt2d::cuda::dimity {

using Launch = void(int row, const Params& params, const Maps& maps, void* stream);
Launch launch_f16;     // dimity_f16.cu
Launch launch_bf16;    // dimity_bf16.cu
Launch launch_tf32;    // dimity_tf32.cu
Launch launch_strict;  // dimity_f32x3.cu

}  // namespace convt2d::cuda::dimity
