// mite's kernels, as the host calls them.
#pragma once

#include "core/problem.h"
#include "cuda/mite/mite_config.h"

namespace convt2d::cuda::mite {

// `row` of kForms, of kSums.
void launch_gather(const Problem& problem, int row, const GatherParams& params, void* stream);
void launch_weight(const Problem& problem, int row, const WeightParams& params, void* stream);

}  // namespace convt2d::cuda::mite
