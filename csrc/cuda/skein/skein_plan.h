// Which tiles of skein fit a problem, their predicted times, and what a kernel is told of one. Host arithmetic only.
#pragma once

#include <string>
#include <vector>

#include "core/args.h"
#include "core/plan.h"
#include "core/problem.h"
#include "cuda/skein/skein_config.h"

namespace convt2d::cuda::skein {

// Every plan there is, in no order. `reason` says why there is none.
std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason);
Decision plan(const Problem& problem, const Device& device);

Params params_of(const Problem& problem, const Plan& plan, const Args& args);
Maps maps_of(const Problem& problem, const Params& params);
int64_t clusters_of(const Params& params);
int shared_bytes(const Params& params, Tile tile, int bytes);  // of numbers of so many

}  // namespace convt2d::cuda::skein
