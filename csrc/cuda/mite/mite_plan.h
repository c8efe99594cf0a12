// Which tiles of mite fit a problem, their predicted times, and what a kernel is told of one. Host arithmetic only.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "core/args.h"
#include "core/phases.h"
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

// A patch of so many rows and columns, which `threads` bring.
inline void set_patch(int64_t channels, int64_t rows, int64_t columns, bool channels_last,
                      int threads, Patch& patch) {
  const int64_t line = channels_last ? channels * columns : columns;
  patch.channels = static_cast<int32_t>(channels);
  patch.pitch = static_cast<int32_t>(columns);
  patch.plane = static_cast<int32_t>(rows * columns);
  patch.lines = static_cast<int32_t>(channels_last ? rows : channels * rows);
  patch.line = static_cast<int32_t>(line);
  patch.together = static_cast<int32_t>(std::max<int64_t>(1, threads / line));
  patch.count = static_cast<int32_t>(channels * rows * columns);
  patch.by_line = FastDivide(line);
  patch.by_rows = FastDivide(rows);
  patch.by_channels = FastDivide(channels_last ? channels : 1);
}
inline void set_tensor(const TensorRef& from, Patch& patch) {
  patch.from = from.data;
  patch.n = static_cast<int32_t>(from.stride[0]);
  patch.c = static_cast<int32_t>(from.stride[1]);
  patch.h = static_cast<int32_t>(from.stride[2]);
  patch.w = static_cast<int32_t>(from.stride[3]);
}
// How often a thread waits for memory until it is there.
inline double rounds(const Patch& patch, int threads, int together) {
  return double(ceil_div(patch.line, threads)) *
         double(ceil_div(patch.lines, int64_t{together} * patch.together));
}
// Bytes that a block moves for it, whole sectors.
inline double sectors(double lines, double line, int64_t element_bytes) {
  return lines * (line * double(element_bytes) + 32);
}
// Warps that bring a number of each lane, all in all.
inline double bringing(const Patch& patch) {
  const int64_t warps = ceil_div(std::min<int64_t>(patch.line * patch.together, 1024), 32);
  return double(warps * ceil_div(patch.lines, patch.together)) *
         std::max(1.0, double(patch.line) / 1024);
}

}  // namespace convt2d::cuda::mite
