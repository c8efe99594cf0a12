// gauze's kernels, as the host calls them.
#pragma once

#include "cuda/gauze/gauze_config.h"

namespace convt2d::cuda::gauze {

using Launch = void(int row, const Params& params, const Maps& maps, void* stream);
Launch launch_f16, launch_bf16, launch_tf32;  // gauze_f16.cu, gauze_bf16.cu, gauze_tf32.cu

}  // namespace convt2d::cuda::gauze
