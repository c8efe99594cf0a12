// Lapped tiles of reed for a problem, and what their kernel is told. Host arithmetic only.
#pragma once

#include <vector>

#include "core/args.h"
#include "core/plan.h"
#include "core/problem.h"
#include "cuda/reed/reed_held_plan.h"
#include "cuda/reed/reed_lapped.h"
#include "cuda/tensor_map.h"

namespace convt2d::cuda::reed {

void add_lapped(const Problem& problem, const Device& device,
                std::vector<Candidate<Choice>>& found);
Plan lapped_plan(const Problem& problem, const Candidate<Choice>& candidate);

Lapped lapped_of(const Problem& problem, const Args& args);
int64_t blocks_of(const Lapped& lapped);
CUtensorMap map_of_lapped(const Problem& problem, const Args& args);
CUtensorMap map_of_lapped_weights(const Problem& problem, const Args& args);

}  // namespace convt2d::cuda::reed
