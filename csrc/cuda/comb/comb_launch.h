// comb's kernels, as the host calls them.
#pragma once

#include "cuda/comb/comb_lines.h"

namespace convt2d::cuda::comb {

using Launch = void(int row, const Params& params, void* stream);
Launch launch_f16;    // comb_f16.cu
Launch launch_bf16;   // comb_bf16.cu
Launch launch_tf32;   // comb_tf32.cu
Launch launch_f32x3;  // comb_f32x3.cu

using LaunchLines = void(int tile, const LineParams& params, void* stream);
LaunchLines launch_lines_f16, launch_lines_bf16, launch_lines_tf32;

}  // namespace convt2d::cuda::comb
