// From a Problem and a choice to the numbers of weft's kernel; shared by the planner and the launcher.
#pragma once

#include <string>

#include "core/problem.h"
#include "cuda/weft/weft_config.h"

namespace convt2d::cuda::weft {

// In which taps are shared out to blocks.
enum class Order { planes, columns, kernel_rows };

// A choice of tile: what Plan.row, Plan.split and Plan.detail carry.
struct Choice {
  int row;                            // of kRows
  int x_blocks, y_blocks, unit_taps;  // see WeightParams
  Order order;
  int tile_h, tile_w;  // pixels of x
  bool padded;         // tiles are whole rows, which lie as far apart as dY's
  bool runs;           // see Params
  int stages, raw_stages;
  int split;  // pieces of the reduction
};

// Everything that follows from the problem and the choice, pointers and strides aside. Returns why it cannot be done, or
// an empty string. Stages may be none yet.
std::string shape(const Problem& problem, const Choice& choice, Params& params);

}  // namespace convt2d::cuda::weft
