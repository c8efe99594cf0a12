// skein's kernels, as the host calls them.
#pragma once

#include "cuda/skein/skein_config.h"

namespace convt2d::cuda::skein {

using Launch = void(int row, const Params& params, const Maps& maps, void* stream);
Launch launch_f16;   // skein_f16.cu
Launch launch_bf16;  // skein_bf16.cu
Launch launch_tf32;  // skein_tf32.cu

}  // namespace convt2d::cuda::skein
