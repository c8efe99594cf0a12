// crimp's kernels, as the host calls them.
#pragma once

#include "cuda/crimp/crimp_config.h"

namespace convt2d::cuda::crimp {

using Launch = void(int row, const Params& params, const Maps& maps, void* stream);
Launch launch_f16, launch_bf16, launch_tf32;  // crimp_f16.cu, crimp_bf16.cu, crimp_tf32.cu

}  // namespace convt2d::cuda::crimp
