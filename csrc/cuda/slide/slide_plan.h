// Which tiles of slide fit a problem, their predicted times, and what a kernel is told of one. Host arithmetic only.
#pragma once

#include <string>
#include <vector>

#include "core/args.h"
#include "core/plan.h"
#include "cuda/slide/slide_strided.h"

namespace convt2d::cuda::slide {

// Every plan there is, in no order. `reason` says why there is none.
std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason);
Decision plan(const Problem& problem, const Device& device);

Params params_of(const Problem& problem, const Plan& plan, const Args& args);
CUtensorMap map_of(const Params& params);
TurnedParams turned_params_of(const Problem& problem, const Plan& plan, const Args& args);
CUtensorMap map_of(const TurnedParams& params);

// The same of grad_input with strides (slide_strided_plan.cpp).
std::vector<Plan> strided_plans(const Problem& problem, const Device& device, std::string& reason);
Decision strided_plan(const Problem& problem, const Device& device);
StridedParams strided_params_of(const Problem& problem, const Plan& plan, const Args& args);

int64_t blocks_of(const Params& params);

// Planes that are whole 16 bytes together.
inline int64_t residues_of(int64_t plane) {
  int64_t residues = 1;
  while (residues * plane % kVector != 0) residues *= 2;
  return residues;
}
inline int shift_of(int32_t power) {
  int shift = 0;
  while (1 << shift < power) ++shift;
  return shift;
}

}  // namespace convt2d::cuda::slide
