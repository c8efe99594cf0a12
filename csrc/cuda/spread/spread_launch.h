// spread's kernels, as the host calls them.
#pragma once

#include "cuda/spread/spread_config.h"

namespace convt2d::cuda::spread {

using Launch = void(DType dtype, int row, const Params& params, const CUtensorMap& map,
                    void* stream);
Launch launch_halves;  // spread_kernel.cu
Launch launch_words;   // spread_kernel_words.cu

}  // namespace convt2d::cuda::spread
