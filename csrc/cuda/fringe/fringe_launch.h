// fringe's kernels, as the host calls them.
#pragma once

#include <cuda.h>

#include "cuda/fringe/fringe_config.h"

namespace convt2d::cuda::fringe {

using Launch = void(int row, const Params& params, const Maps& maps, void* stream);
Launch launch_f16, launch_bf16, launch_tf32;  // fringe_kernel.cu

}  // namespace convt2d::cuda::fringe
