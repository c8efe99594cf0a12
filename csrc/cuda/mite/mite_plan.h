// Which tiles of mite fit a problem, their predicted times, and what a kernel is told of one. Host arithmetic only.
#pragma once

#include <string>
#include <vector>

#include "core/args.h"
#include "core/plan.h"
#include "core/problem.h"
#include "cuda/mite/mite_config.h"

namespace convt2d::cuda::mite {

// Every plan there is, in no order. `reason` says why there is none.
std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason);
Decision plan(const Problem& problem, const Device& device);

GatherParams gather_params_of(const Problem& problem, const Plan& plan, const Args& args);
WeightParams weight_params_of(const Problem& problem, const Plan& plan, const Args& args);

// A choice in Plan.detail.
enum Detail { kTileH, kTileW, kTileColumns, kMerged, kEarly };

// mite_gather_plan.cpp, mite_weight_plan.cpp
struct Choice {
  int row, tile_h, tile_w;
  int tile_columns;  // of a block, of a group's
  int merged;        // channels-last: all channels and phases of a position are one run
};
std::string shape_gather(const Problem& problem, const Choice& choice, GatherParams& p);
std::string shape_weight(const Problem& problem, const Choice& choice, WeightParams& p);
double predict_gather(const Problem& problem, const Device& device, const Choice& choice,
                      const GatherParams& p);
double predict_weight(const Problem& problem, const Device& device, const Choice& choice,
                      const WeightParams& p);

}  // namespace convt2d::cuda::mite
