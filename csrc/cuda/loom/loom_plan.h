// Which tiles of loom fit a problem, their predicted times, and what a kernel is told of one. Host arithmetic only.
#pragma once

#include <string>
#include <vector>

#include "core/args.h"
#include "core/plan.h"
#include "core/search.h"
#include "cuda/loom/loom_config.h"

namespace convt2d::cuda::loom {

// Every plan there is, in no order. `reason` says why there is none.
std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason);
Decision plan(const Problem& problem, const Device& device);
Decision search(const Problem& problem, const Device& device, Best best);

GatherParams params_of(const Problem& problem, const Plan& plan, const Args& args);
int64_t blocks_of(const GatherParams& params);  // of the grid
TensorMaps maps_of(const GatherParams& params);

}  // namespace convt2d::cuda::loom
