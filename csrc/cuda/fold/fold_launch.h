// fold's kernels, as the host calls them.
#pragma once

#include "cuda/fold/fold_config.h"

namespace convt2d::cuda::fold {

using Launch = void(DType dtype, int row, const Params& params, const Maps& maps, int64_t blocks,
                    void* stream);
Launch launch_halves;   // fold_kernel.cu
Launch launch_shifted;  // fold_kernel_shifted.cu
Launch launch_flat;     // fold_kernel_flat.cu
Launch launch_words;    // fold_kernel_words.cu
Launch launch_crossed;  // fold_kernel_crossed.cu

}  // namespace convt2d::cuda::fold
