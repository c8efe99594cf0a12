// Which tiles of narrow fit a problem, their predicted times, and what a kernel is told of one. Host arithmetic only.
#pragma once

#include <string>
#include <vector>

#include "core/args.h"
#include "core/plan.h"
#include "cuda/narrow/narrow_config.h"
#include "cuda/tensor_map.h"

namespace convt2d::cuda::narrow {

// Every plan there is, in no order. `reason` says why there is none.
std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason);
Decision plan(const Problem& problem, const Device& device);

// What ribbons (narrow_ribbon.h) know as well: why neither takes a problem; products of a pixel in a row; by how many rows
// or pixels a kernel reaches; one past the last position of the destination.
std::string common_refusal(const Problem& problem, const Device& device);
int columns_of(const Problem& problem);
int64_t reach_of(const Axis& axis);
int64_t end_of(const Axis& axis);

Params params_of(const Problem& problem, const Plan& plan, const Args& args);
CUtensorMap map_of(const Params& params, Tile tile);

// Lines of x of a chunk, for both kinds of parameters: a box of NCHW has so many `channels`; words may be rounded on the way.
template <class AnyParams>
CUtensorMap map_of_lines(const AnyParams& p, int32_t channels, bool rounded) {
  const int64_t row = int64_t{p.x_w} * p.x_pixel * p.number_bytes, plane = row * p.x_h;
  const int32_t numbers = p.line / p.number_bytes;
  if (p.channels_last)
    return encode({p.source,
                   p.number_bytes,
                   4,
                   {p.reduce, p.x_w, p.x_h, p.batch},
                   {p.number_bytes, int64_t{p.x_pixel} * p.number_bytes, row, plane},
                   {numbers, p.run, 1, p.images},
                   {1, 1, 1, 1}});
  return encode({p.source,
                 p.number_bytes,
                 4,
                 {p.x_w, p.reduce, p.x_h, p.batch},
                 {p.number_bytes, plane, row, plane * p.reduce},
                 {numbers, channels, 1, p.images},
                 {1, 1, 1, 1},
                 true,
                 rounded});
}

}  // namespace convt2d::cuda::narrow
