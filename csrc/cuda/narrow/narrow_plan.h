// Which tiles of narrow fit a problem, their predicted times, and what a kernel is told of one. Host arithmetic only.
#pragma once

#include <string>
#include <vector>

#include "core/args.h"
#include "core/plan.h"
#include "cuda/narrow/narrow_config.h"

namespace convt2d::cuda::narrow {

// Every plan there is, in no order. `reason` says why there is none.
std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason);
Decision plan(const Problem& problem, const Device& device);

// What ribbons (narrow_ribbon.h) know as well: why neither takes a problem; products of a pixel in a row; by how many rows
// or pixels a kernel reaches; one past the last position of the destination.
std::string common_refusal(const Problem& problem, const Device& device);
int columns_of(const Problem& problem);
int64_t reach_of(const Axis& axis);
int64_t end_of(const Axis& axis);

Params params_of(const Problem& problem, const Plan& plan, const Args& args);
CUtensorMap map_of(const Params& params, Tile tile);

}  // namespace convt2d::cuda::narrow
