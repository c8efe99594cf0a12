// plain's kernels, as the host calls them.
#pragma once

#include "cuda/plain/plain_config.h"

namespace convt2d::cuda::plain {

using Launch = void(int row, bool forward, const Params& params, const Maps& maps, void* stream);
using LaunchWeight = void(int row, const WeightParams& params, const Maps& maps, void* stream);
Launch launch_f16, launch_bf16;  // plain_f16.cu, plain_bf16.cu
LaunchWeight launch_weight_f16, launch_weight_bf16;

}  // namespace convt2d::cuda::plain
