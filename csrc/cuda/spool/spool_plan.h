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

// Bytes of all copies and partial sums together, at most.
constexpr int64_t kWorkspaceMost = int64_t{256} << 20;

// Every plan there is, in no order. `reason` says why there is none.
std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason);
Decision plan(const Problem& problem, const Device& device);

// The problem that hopper is given.
Problem turned_problem(const Problem& problem);

struct Params {
  TurnParams turn;
  hopper::WeightParams weight;
  const void *x, *y;  // turned
  SumParams sum;
  bool rounded;  // one piece, of the weights' type
  int64_t turn_blocks, weight_blocks, sum_blocks;
};
Params params_of(const Problem& problem, const Plan& plan, const Args& args);

}  // namespace convt2d::cuda::spool
