// Which tile of gauze fits a problem, its predicted time, and what a kernel is told of it. Host arithmetic only.
#pragma once

#include <string>
#include <vector>

#include "core/args.h"
#include "core/plan.h"
#include "core/problem.h"
#include "cuda/gauze/gauze_config.h"

namespace convt2d::cuda::gauze {

// Every plan there is, in no order. `reason` says why there is none.
std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason);
Decision plan(const Problem& problem, const Device& device);

Params params_of(const Problem& problem, const Plan& plan, const Args& args);
Maps maps_of(const Problem& problem, const Params& params, const Args& args);

}  // namespace convt2d::cuda::gauze
