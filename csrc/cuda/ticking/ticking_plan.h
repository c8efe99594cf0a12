// Which blocks of ticking fit a problem, their predicted times, and what a kernel is told of them. Host arithmetic only.
#pragma once

#include <string>
#include <vector>

#include "core/args.h"
#include "core/plan.h"
#include "core/problem.h"
#include "cuda/ticking/ticking_config.h"

namespace convt2d::cuda::ticking {

// Every plan there is, in no order. `reason` says why there is none.
std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason);
Decision plan(const Problem& problem, const Device& device);

Params params_of(const Problem& problem, const Plan& plan, const Args& args);
int64_t blocks_of(const Params& params);

}  // namespace convt2d::cuda::ticking
