// heddle's kernels, as the host calls them.
#pragma once

#include "cuda/heddle/heddle_config.h"

namespace convt2d::cuda::heddle {

using Launch = void(int row, const Params& params, void* stream);
Launch launch_tf32;   // heddle_tf32.cu
Launch launch_f32x3;  // heddle_f32x3.cu

}  // namespace convt2d::cuda::heddle
