// Which tiles of rows fit a problem, their predicted times, and what the kernel is told of one. Host arithmetic only.
#pragma once

#include <string>
#include <vector>

#include "core/args.h"
#include "core/plan.h"
#include "cuda/rows/rows_config.h"

namespace convt2d::cuda::rows {

// Every plan there is, in no order. `reason` says why there is none.
std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason);
Decision plan(const Problem& problem, const Device& device);

// Whether x and y are channels last, which has a kernel of its own.
inline bool is_pixels(const Problem& problem) { return problem.y_layout == Layout::nhwc; }

Params params_of(const Problem& problem, const Plan& plan, const Args& args);

// rows_kernel.cu
void launch_kernel(const Problem& problem, const Params& params, void* stream);

}  // namespace convt2d::cuda::rows
