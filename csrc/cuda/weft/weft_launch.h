// weft's kernels, as the host calls them.
#pragma once

#include "cuda/weft/weft_config.h"

namespace convt2d::cuda::weft {

using Launch = void(int row, const Params& params, const Maps& maps, int64_t blocks, void* stream);
Launch launch_f16;   // weft_f16.cu
Launch launch_bf16;  // weft_bf16.cu

}  // namespace convt2d::cuda::weft
