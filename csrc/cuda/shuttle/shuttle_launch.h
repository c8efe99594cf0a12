// shuttle's kernels, as the host calls them.
#pragma once

#include <cuda.h>

#include "cuda/shuttle/shuttle_config.h"

namespace convt2d::cuda::shuttle {

using Launch = void(int row, const Params& params, const Maps& maps, void* stream);
Launch launch_f16, launch_bf16;  // shuttle_kernel.cu

}  // namespace convt2d::cuda::shuttle
