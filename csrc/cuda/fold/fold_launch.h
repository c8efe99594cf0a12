// fold's kernel, as the host calls it.
#pragma once

#include "cuda/fold/fold_config.h"

namespace convt2d::cuda::fold {

// fold_kernel.cu
void launch_kernel(DType dtype, int row, const Params& params, const Maps& maps, int64_t blocks,
                   void* stream);

}  // namespace convt2d::cuda::fold
