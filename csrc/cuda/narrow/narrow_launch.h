// narrow's kernels, as the host calls them.
#pragma once

#include "cuda/narrow/narrow_config.h"

namespace convt2d::cuda::narrow {

using Launch = void(DType dtype, int row, const Params& params, const CUtensorMap& map,
                    void* stream);
Launch launch_halves;  // narrow_kernel.cu
Launch launch_words;   // narrow_kernel_words.cu

}  // namespace convt2d::cuda::narrow
