// loom's kernels, as the host calls them.
#pragma once

#include "cuda/loom/loom_plan.h"

namespace convt2d::cuda::loom {

void launch_tile(int row, const GatherParams& params, const TensorMaps& maps, void* stream);

}  // namespace convt2d::cuda::loom
