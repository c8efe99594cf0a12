// treadle's kernels, as the host calls them.
#pragma once

#include <cuda.h>

#include "cuda/treadle/treadle_config.h"

namespace convt2d::cuda::treadle {

using Launch = void(int row, bool channels_last, const Params& params, const CUtensorMap& map,
                    void* stream);
Launch launch_tf32, launch_strict;  // treadle_f32.cu
Launch launch_f16, launch_bf16;     // treadle_halves.cu

}  // namespace convt2d::cuda::treadle
