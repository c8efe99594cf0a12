// What the launchers of lanes share: which kernel serves a call.
#pragma once

#include <type_traits>

#include "cuda/depthwise/depthwise_lanes.cuh"
#include "cuda/depthwise/depthwise_launch.h"

namespace convt2d::cuda::depthwise {

// Calls visit(an element, integral constant of kLaneKernels) if lanes serve this call; returns whether they do.
template <typename Visitor>
bool visit_lane_kernel(const Problem& problem, const Args& args, Visitor&& visit) {
  const int index = lane_kernel(problem);
  if (index < 0 || !both_aligned(problem, args, 16 / element_size(problem.dtype))) return false;
  visit_dtype(problem.dtype, [&](auto element) {
    if constexpr (sizeof(element) <= 4) {
      visit_number<int(kLaneKernels.size())>(index + 1, [&](auto number) {
        visit(element, std::integral_constant<int, decltype(number)::value - 1>{});
      });
    }
  });
  return true;
}

}  // namespace convt2d::cuda::depthwise
