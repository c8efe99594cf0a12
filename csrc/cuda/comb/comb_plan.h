// Which tiles of comb fit a problem, their predicted times, and what a kernel is told of one. Host arithmetic only.
#pragma once

#include <string>
#include <vector>

#include "core/args.h"
#include "core/plan.h"
#include "core/problem.h"
#include "cuda/comb/comb_config.h"
#include "cuda/comb/comb_lines.h"

namespace convt2d::cuda::comb {

// Every plan there is, in no order. `reason` says why there is none.
std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason);
Decision plan(const Problem& problem, const Device& device);

// The same of lines (comb_lines.h), whose rows of plans follow those of kTiles; they are asked where nothing refuses a problem
// that is comb's.
std::vector<Plan> line_plans(const Problem& problem, const Device& device, std::string& reason);
Decision line_plan(const Problem& problem, const Device& device);
LineParams line_params_of(const Problem& problem, const Plan& plan, const Args& args);
int64_t line_blocks_of(const LineParams& params);
// A problem without tile, cut or pointers.
void shape_whole(const Problem& problem, Params& params);

Params params_of(const Problem& problem, const Plan& plan, const Args& args);
// Channels last: the same problem in NCHW but for x, which lies as it did; a bias is of the channels that there were.
Problem as_one_channel(Problem problem);
int64_t blocks_of(const Params& params);
int shared_bytes(const Params& params, Tile tile, int element_bytes);

}  // namespace convt2d::cuda::comb
