// twill's kernels, as the host calls them.
#pragma once

#include "cuda/twill/twill_config.h"

namespace convt2d::cuda::twill {

using Launch = void(int row, const Params& params, const Maps& maps, void* stream);
Launch launch_f16, launch_bf16;  // twill_f16.cu, twill_bf16.cu

}  // namespace convt2d::cuda::twill
