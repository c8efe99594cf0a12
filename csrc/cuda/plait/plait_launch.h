// plait's kernels, as the host calls them.
#pragma once

#include "cuda/plait/plait_config.h"

namespace convt2d::cuda::plait {

void launch_kernel(DType dtype, const Params& params, const Maps& maps, int64_t blocks,
                   void* stream);  // plait_kernel.cu

}  // namespace convt2d::cuda::plait
