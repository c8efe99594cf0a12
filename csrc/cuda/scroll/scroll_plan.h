// Which tiles fit a problem, their predicted times, and what a kernel is told of one.
#pragma once

#include <cuda.h>

#include <string>
#include <vector>

#include "core/args.h"
#include "core/plan.h"
#include "core/problem.h"
#include "cuda/scroll/scroll_config.h"

namespace convt2d::cuda::scroll {

Decision plan(const Problem& problem, const Device& device);
// Every plan there is, in no order, or why there is none.
std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason);

Params params_of(const Problem& problem, const Plan& plan, const Args& args);
CUtensorMap map_of(const Params& params);
int64_t blocks_of(const Params& params);

// What tiles of planes share (scroll_planes_plan.h): grad_input of stride 1 as a forward; what follows from the problem and
// the tile alone, and from the bytes of a line; pointers and weights; and reasons to refuse. A tile serves a forward if it has
// its kernel rows, its stride of rows, and so many phases of columns together.
Problem as_forward(const Problem& given);
bool serves(const Tile& tile, const Problem& problem, int64_t phases);
void set_problem(const Problem& problem, Tile tile, Params& params);
void set_chunks(Params& params);
void set_operands(const Problem& problem, const Args& args, Params& params);
std::string common_refusal(const Problem& given, const Device& device);

}  // namespace convt2d::cuda::scroll
