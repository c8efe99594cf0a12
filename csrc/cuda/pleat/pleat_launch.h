// pleat's kernels, as the host calls them.
#pragma once

#include "cuda/pleat/pleat_config.h"

namespace convt2d::cuda::pleat {

using Launch = void(int row, const Params& params, const Maps& maps, void* stream);
Launch launch_f16, launch_bf16;  // pleat_f16.cu, pleat_bf16.cu

}  // namespace convt2d::cuda::pleat
