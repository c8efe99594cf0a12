// What the copy engine brings of a problem.
#pragma once

#include "cuda/hopper/hopper_config.h"

namespace convt2d::cuda::hopper {

// Once all of the parameters are set. Empty where nothing is copied.
TensorMaps maps_of(const GatherParams& params, TileRow tile);

}  // namespace convt2d::cuda::hopper
