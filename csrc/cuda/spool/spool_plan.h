// Which of hopper's plans for channels last spool may use, their predicted times with all there is around them, and what its
// own kernels are told. Host arithmetic only.
#pragma once

#include <string>
#include <vector>

#include "core/args.h"
#include "core/plan.h"
#include "core/problem.h"
#include "cuda/hopper/hopper_weight_config.h"
#include "cuda/spool/spool_config.h"

namespace convt2d::cuda::spool {

// Every plan there is, in no order. `reason` says why there is none.
std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason);
Decision plan(const Problem& problem, const Device& device);

// Slices of the batch, whose images differ by one at most: in Plan.detail, behind hopper's.
constexpr int kSlicesAt = 11;
int slices_of(const Plan& plan);

struct Params {
  TurnParams turn;
  hopper::WeightParams weight;
  const void *x, *y;  // turned
  SumParams sum;
  bool rounded;  // one piece of one slice, of the weights' type
  int64_t turn_blocks, weight_blocks, sum_blocks;
};
// Those of a slice; the sum is that of all.
Params params_of(const Problem& problem, const Plan& plan, const Args& args, int slice);

}  // namespace convt2d::cuda::spool
