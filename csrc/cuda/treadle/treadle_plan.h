// Which tiles of treadle fit a problem, their predicted times, and what a kernel is told of one. Host arithmetic only.
#pragma once

#include <cuda.h>

#include <string>
#include <vector>

#include "core/args.h"
#include "core/plan.h"
#include "core/problem.h"
#include "cuda/treadle/treadle_config.h"

namespace convt2d::cuda::treadle {

// Every plan there is, in no order. `reason` says why there is none.
std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason);
Decision plan(const Problem& problem, const Device& device);

inline bool channels_last(const Problem& problem) { return problem.x_layout == Layout::nhwc; }
Params params_of(const Problem& problem, const Plan& plan, const Args& args);
// Of what the copy engine brings: NCHW's x, channels-last dY.
CUtensorMap map_of(const Problem& problem, const Params& params);
int64_t blocks_of(const Params& params);

}  // namespace convt2d::cuda::treadle
