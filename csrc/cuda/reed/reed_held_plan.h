// Held tiles of reed for a problem, beside those of reed_plan.h, and what a kernel is told of one. Host arithmetic only.
#pragma once

#include <vector>

#include "core/args.h"
#include "core/plan.h"
#include "core/problem.h"
#include "cuda/gather_params.h"
#include "cuda/reed/reed_held.h"

namespace convt2d::cuda::reed {

// A row of kTiles, or kHeldRow with tiles of 16 positions and among how many blocks rows are shared out.
struct Choice {
  int row, stages, tiles = 0, parts = 0;
};

// Of reed_plan.cpp: what a row of kTiles is told, where its tensors are, and in how many positions y has what.
void shape(const Problem& problem, const Choice& choice, Params& params);
void point_at(const Problem& problem, const Args& args, Params& params);

void shape_held(const Problem& problem, const Choice& choice, Held& held);
// The best way to share out the rows of a tile, by what is predicted.
using Predict = double(const Problem& problem, const Device& device, const Held& held);
void share_out(const Problem& problem, const Device& device, Choice choice, Predict* predict,
               std::vector<Candidate<Choice>>& found);

void add_held(const Problem& problem, const Device& device, std::vector<Candidate<Choice>>& found);
Plan held_plan(const Problem& problem, const Candidate<Choice>& candidate);

Held held_of(const Problem& problem, const Plan& plan, const Args& args);
int64_t blocks_of(const Held& held);
int shared_bytes(const Held& held, int element_bytes);
int wide_bytes(const Held& held);  // of a tile of wgmma

}  // namespace convt2d::cuda::reed
