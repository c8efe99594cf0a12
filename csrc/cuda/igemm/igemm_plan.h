// Candidates of the igemm family with their predicted times. Host arithmetic only.
#pragma once

#include <vector>

#include "core/plan.h"
#include "core/search.h"
#include "cuda/gather_params.h"
#include "cuda/igemm/igemm_shape.h"

namespace convt2d::cuda::igemm {

using GatherCandidate = Candidate<GatherChoice>;

// Every tile that fits, in no order; or those that may be better than the best that is known. `reason` says why there is none.
std::vector<GatherCandidate> gather_candidates(const Problem& problem, const Device& device,
                                               std::string& reason, Best* best = nullptr);

// A candidate as a Plan, and back.
Plan plan_of(const GatherCandidate& candidate);
GatherChoice choice_of(const Plan& plan);

Decision plan(const Problem& problem, const Device& device);
Decision search(const Problem& problem, const Device& device, Best best);

}  // namespace convt2d::cuda::igemm
