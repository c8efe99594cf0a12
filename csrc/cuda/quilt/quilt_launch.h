// quilt's kernels, as the host calls them.
#pragma once

#include "cuda/quilt/quilt_config.h"

namespace convt2d::cuda::quilt {

using Launch = void(int row, const Params& params, const Maps& maps, void* stream);
Launch launch_f16;     // quilt_f16.cu
Launch launch_bf16;    // quilt_bf16.cu
Launch launch_tf32;    // quilt_f32.cu
Launch launch_strict;  // quilt_f32.cu

}  // namespace convt2d::cuda::quilt
