// Which of hopper's plans for channels last spool may use, their predicted times with all there is around them, and what its
// own kernels are told. Host arithmetic only.
#pragma once

#include <string>
#include <vector>

#include "core/args.h"
#include "core/plan.h"
#include "core/problem.h"
#include "core/search.h"
#include "cuda/hopper/hopper_weight_config.h"
#include "cuda/spool/spool_config.h"

namespace convt2d::cuda::spool {

// Every plan there is, in no order. `reason` says why there is none.
std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason);
Decision plan(const Problem& problem, const Device& device);
Decision search(const Problem& problem, const Device& device, Best best);

// Images of a slice, of which a reel has several: in Plan.detail, behind hopper's.
constexpr int kImagesAt = 11;
int slices_of(const Problem& problem, const Plan& plan);

struct Params {
  TurnParams turn;
  hopper::WeightParams weight;  // of a slice
  const void *x, *y;            // turned
  ReelParams reel;              // of several slices
  SumParams sum;
  bool rounded;  // one piece, of the weights' type
  int64_t turn_blocks, weight_blocks, sum_blocks;
  int reel_bytes;
};
Params params_of(const Problem& problem, const Plan& plan, const Args& args);
ReelMaps reel_maps_of(const ReelParams& reel);

}  // namespace convt2d::cuda::spool
