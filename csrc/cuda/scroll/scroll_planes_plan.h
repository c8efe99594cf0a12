// scroll's tiles of planes: which fit a problem, their predicted times, and what a kernel is told of one.
#pragma once

#include <string>
#include <vector>

#include "core/args.h"
#include "core/plan.h"
#include "core/problem.h"
#include "cuda/scroll/scroll_planes.h"

namespace convt2d::cuda::scroll {

Decision plane_plan(const Problem& problem, const Device& device);
std::vector<Plan> plane_plans(const Problem& problem, const Device& device, std::string& reason);
PlaneParams plane_params_of(const Problem& problem, const Plan& plan, const Args& args);

}  // namespace convt2d::cuda::scroll
