// Candidates of igemm's grad_weight with their predicted times. Host arithmetic only.
#pragma once

#include <vector>

#include "core/plan.h"
#include "core/search.h"
#include "cuda/gather_params.h"
#include "cuda/igemm/igemm_weight_shape.h"

namespace convt2d::cuda::igemm {

// The predicted time is that of the kernel and the sum of its pieces.
using WeightCandidate = Candidate<WeightChoice>;

// Every tile that fits, in no order: the same for all devices; or those among which the cheapest is, without what cannot
// be it. `reason` says why there is none.
std::vector<WeightCandidate> weight_candidates(const Problem& problem, const Device& device,
                                               std::string& reason, Best* best = nullptr);

// A candidate as a Plan, and back.
Plan weight_plan_of(const Problem& problem, const Device& device, const WeightCandidate& candidate);
WeightChoice weight_choice_of(const Plan& plan);

// `best`: of others, see Search.
Decision weight_plan(const Problem& problem, const Device& device, Best best = {});

}  // namespace convt2d::cuda::igemm
