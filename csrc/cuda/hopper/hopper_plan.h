// Candidates of the hopper family with their predicted times. Host arithmetic only.
#pragma once

#include <vector>

#include "core/plan.h"
#include "core/search.h"
#include "cuda/hopper/hopper_shape.h"

namespace convt2d::cuda::hopper {

struct GatherCandidate {
  GatherChoice choice;
  int32_t walkers[kMaxShares];  // of GatherParams
  double predicted_us;
  int32_t slices;    // of a chunk
  const char* rows;  // rows_of(), if they are fetched
  double over;       // what a tile takes, over what is predicted: for other families
  int order;         // of equals, the first is taken
};

// Fetched rows: who brings them, and what becomes of them then.
const char* rows_of(const GatherParams& params);

// Every tile that fits, in no order; or those that may be better than the best that is known, and no worse than each other.
// `reason` says why there is none.
std::vector<GatherCandidate> gather_candidates(const Problem& problem, const Device& device,
                                               std::string& reason, Best* best = nullptr);

// A candidate as a Plan, and back.
Plan plan_of(const GatherCandidate& candidate);
GatherChoice choice_of(const Plan& plan);
void set_walkers(const Plan& plan, GatherParams& params);

Decision plan(const Problem& problem, const Device& device);
Decision search(const Problem& problem, const Device& device, Best best);

}  // namespace convt2d::cuda::hopper
