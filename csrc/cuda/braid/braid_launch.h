// braid's kernels, as the host calls them.
#pragma once

#include "cuda/braid/braid_config.h"

namespace convt2d::cuda::braid {

using Launch = void(int row, const Params& params, const Maps& maps, void* stream);
Launch launch_f16;   // braid_f16.cu
Launch launch_bf16;  // braid_bf16.cu
Launch launch_tf32;  // braid_f32.cu

}  // namespace convt2d::cuda::braid
