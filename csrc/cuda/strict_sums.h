// Strict fp32 on tensor cores: three TF32 products for one keep 22 bits of it. That is worse than fp32 multiply-adds for
// short sums and better for long ones, where the rounding of a running sum dominates; families measured from how many
// products on.
#pragma once

#include <algorithm>
#include <string>

#include "core/phases.h"
#include "core/problem.h"
#include "cuda/gather_axes.h"

namespace convt2d::cuda {

inline bool is_strict(const Problem& problem) {
  return problem.dtype == DType::f32 && problem.precision == Precision::ieee;
}

// Products in a sum of the phase with the fewest taps, empty ones aside.
inline int64_t shortest_sum(const Problem& problem) {
  if (problem.direction == Direction::grad_weight)
    return problem.batch * problem.h.in * problem.w.in;
  const bool forward = problem.direction == Direction::fwd;
  const auto fewest = [&](const Axis& axis) {
    if (!forward) return axis.kernel;
    int64_t taps = axis.kernel;
    const int64_t phases = std::min<int64_t>(axis.stride, kMaxAxisGroups * kMaxSlots);
    for (int64_t phase = 0; phase < phases; ++phase)
      if (const int64_t here = forward_walk(axis, phase).taps; here > 0)
        taps = std::min(taps, here);
    return taps;
  };
  return fewest(problem.h) * fewest(problem.w) *
         (forward ? problem.group_in() : problem.group_out());
}

// Of wgmma's sums, and of those of grad_input; measured against float64 on the H200 (tests/test_numeric.py, 2026-11-22).
constexpr int64_t kLeastWgmmaTerms = 64, kLeastWgmmaTermsOfInput = 96;

// Of those of mma.sync; 66 products were one unit beyond what is allowed (comb, 2026-11-24).
constexpr int64_t kLeastSplitTerms = 128;

// Why strict fp32 sums of fewer than `least` products are left to others, or an empty string.
inline std::string sums_too_short(const Problem& problem, int64_t least) {
  if (!is_strict(problem)) return {};
  const int64_t terms = shortest_sum(problem);
  return terms >= least
             ? std::string()
             : "strict fp32 sums of " + std::to_string(terms) + " products, fewer than " +
                   std::to_string(least) + ", are more accurate on plain multiply-adds";
}

}  // namespace convt2d::cuda
