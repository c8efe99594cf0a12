// Candidates of hopper's grad_weight with their predicted times. Host arithmetic only.
#pragma once

#include <vector>

#include "core/plan.h"
#include "core/search.h"
#include "cuda/gather_params.h"
#include "cuda/hopper/hopper_weight_shape.h"

namespace convt2d::cuda::hopper {

// The predicted time is that of the kernel and the sum of its pieces.
using WeightCandidate = Candidate<WeightChoice>;

// Every tile that fits, in no order: the same for all devices. `reason` says why there is none. `beside`: bytes of a block's
// shared memory that are somebody else's. Where `best` is given, what cannot be better is left out.
std::vector<WeightCandidate> weight_candidates(const Problem& problem, const Device& device,
                                               std::string& reason, bool spooled = false,
                                               int beside = 0, Best* best = nullptr);
// That of one on another device.
double weight_time(const Problem& problem, const Device& device, const WeightChoice& choice,
                   bool spooled = false);

// A candidate as a Plan, and back.
Plan weight_plan_of(const Problem& problem, const Device& device, const WeightCandidate& candidate,
                    bool spooled = false);
WeightChoice weight_choice_of(const Plan& plan);

// `best`: of others, see Search.
Decision weight_plan(const Problem& problem, const Device& device, Best best = {});

}  // namespace convt2d::cuda::hopper
