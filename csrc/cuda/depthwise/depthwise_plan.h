// What may serve a problem: for measurements; the family takes one of them.
#pragma once

#include <string>
#include <vector>

#include "core/plan.h"

namespace convt2d::cuda::depthwise {

// Row 0, tiles that take everything, and row 1, y or dY in registers, where that serves. `reason` says why
// there is none.
std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason);

}  // namespace convt2d::cuda::depthwise
