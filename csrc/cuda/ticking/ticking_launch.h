// ticking's kernels, as the host calls them.
#pragma once

#include "core/problem.h"
#include "cuda/ticking/ticking_config.h"

namespace convt2d::cuda::ticking {

void launch_kernel(const Problem& problem, int row, const Params& params, void* stream);

}  // namespace convt2d::cuda::ticking
