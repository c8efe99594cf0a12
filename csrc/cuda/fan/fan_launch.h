// fan's kernels, as the host calls them.
#pragma once

#include "cuda/fan/fan_plan.h"

namespace convt2d::cuda::fan {

void launch_tile(int row, const GatherParams& params, const TensorMaps& maps, void* stream);

}  // namespace convt2d::cuda::fan
