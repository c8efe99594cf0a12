// Broad tiles of reed for a problem, and what their kernel is told. Host arithmetic only.
#pragma once

#include "cuda/reed/reed_broad.h"
#include "cuda/reed/reed_held_plan.h"

namespace convt2d::cuda::reed {

void add_broad(const Problem& problem, const Device& device, std::vector<Candidate<Choice>>& found);
int broad_bytes(const Held& held);
CUtensorMap map_of_broad_weights(const Problem& problem, const Held& held);

}  // namespace convt2d::cuda::reed
