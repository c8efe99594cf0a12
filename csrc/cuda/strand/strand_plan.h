// Which tiles of strand fit a problem, their predicted times, and what a kernel is told of one. Host arithmetic only.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "core/args.h"
#include "core/phases.h"
#include "core/plan.h"
#include "core/problem.h"
#include "cuda/strand/strand_dense.h"
#include "cuda/strand/strand_spans.h"
#include "cuda/strand/strand_windows.h"
#include "cuda/tensor_map.h"

namespace convt2d::cuda::strand {

// Tiles of a multiprocessor up to which outputs count as few: what more of them are best served by was not measured.
constexpr int kMostTiles = 4;

// Every plan there is, in no order, also where outputs are too many for `plan`. `reason` says why there is none.
std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason);
Decision plan(const Problem& problem, const Device& device);

// How often a multiprocessor's turn comes for so many tiles, each a cluster of `ranks`, where `together` blocks run side by side
// on one.
double rounds_of(const Device& device, int64_t tiles, int ranks, int together);

Params params_of(const Problem& problem, const Plan& plan, const Args& args);
int64_t tiles_of(const Params& params);

// The same of windows (strand_windows.h), whose rows of plans follow those of kTiles; they are asked where nothing above
// refuses. What the copy engine is told of dY and of weights.
std::vector<Plan> window_plans(const Problem& problem, const Device& device, std::string& reason);
Decision window_plan(const Problem& problem, const Device& device);
WindowParams window_params_of(const Problem& problem, const Plan& plan, const Args& args);
int64_t window_tiles_of(const WindowParams& params);
CUtensorMap map_of_windows(const Problem& problem, const WindowParams& params);
CUtensorMap map_of_window_weights(const Problem& problem, const WindowParams& params);

// The same of dense rows (strand_dense.h), whose rows of plans follow those.
std::vector<Plan> dense_plans(const Problem& problem, const Device& device, std::string& reason);
Decision dense_plan(const Problem& problem, const Device& device);
inline int dense_row_of(const Plan& plan) { return plan.row - kTileCount - kWindowTileCount; }
DenseParams dense_params_of(const Problem& problem, const Plan& plan, const Args& args);
int64_t dense_tiles_of(const DenseParams& params);
CUtensorMap map_of_dense(const Problem& problem, const DenseParams& params);
CUtensorMap map_of_dense_weights(const Problem& problem, const DenseParams& params, int columns);

// The same of spans (strand_spans.h), of which there is one tile: the row of plans behind those.
constexpr int kSpanRow = kTileCount + kWindowTileCount + kDenseTileCount;
std::vector<Plan> span_plans(const Problem& problem, const Device& device, std::string& reason);
Decision span_plan(const Problem& problem, const Device& device);
SpanParams span_params_of(const Problem& problem, const Plan& plan, const Args& args);
int64_t span_tiles_of(const SpanParams& params);
bool span_pixels(const Problem& problem);  // whether a pixel's channels are neighbours
CUtensorMap map_of_spans(const Problem& problem, const SpanParams& params);
CUtensorMap map_of_span_weights(const Problem& problem, const SpanParams& params);

// What windows and dense rows have in common on the host: bytes of a number, and where a block's table of a unit's steps and
// its stages are, behind the barriers of as many stages as there may be.
inline int64_t size_of(const Problem& problem) {
  return static_cast<int64_t>(element_size(problem.dtype));
}
template <class UnitParams>
void place_stages(int most_stages, UnitParams& p) {
  p.table_at = most_stages * 16;
  p.stages_at = static_cast<int32_t>(
      std::min<int64_t>(round_up(p.table_at + int64_t{p.steps} * 8, 1024), INT32_MAX / 2));
}

}  // namespace convt2d::cuda::strand
