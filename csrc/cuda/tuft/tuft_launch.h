// tuft's kernels, as the host calls them.
#pragma once

#include "cuda/tuft/tuft_config.h"

namespace convt2d::cuda::tuft {

using Launch = void(int row, const Params& params, const Maps& maps, int64_t blocks, void* stream);
Launch launch_f16, launch_bf16, launch_tf32;  // tuft_f16.cu, tuft_bf16.cu, tuft_tf32.cu

}  // namespace convt2d::cuda::tuft
