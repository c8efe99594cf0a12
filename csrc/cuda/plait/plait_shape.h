// What follows from a problem and a choice: extents, how raw dY comes, places in shared memory. Host arithmetic only.
#pragma once

#include "core/plan.h"
#include "cuda/plait/plait_config.h"

namespace convt2d::cuda::plait {

struct Choice {
  // Stages are negative if weights stay; no raw stages: those who sort load.
  int form, stages, walkers, raw_stages;
};

// Bytes a cycle that a multiprocessor has of L2; cycles that the copy engine takes for a piece, whatever it brings.
constexpr double kLevel2 = 40, kPiece = 80;

// Which of kTaps; -1: none.
int kind_of(const Problem& problem);
// Everything that follows from the problem and the choice, pointers and places aside.
void shape(const Problem& problem, const Choice& choice, Params& p);
// Places in shared memory, with weights that stay or not.
void place(bool resident, int stages, Params& p);
// Both.
Params shape_of(const Problem& problem, const Choice& choice);
// In how many pieces the raw dY of a chunk comes.
int64_t raw_pieces(const Params& p);

}  // namespace convt2d::cuda::plait
