// What the tensor-core families have in common on the host. GatherParams and WeightParams are theirs; here are the
// operands, extents and tiles of them, by the names of the fields, how much work there is, and the choice among
// candidates.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/args.h"
#include "core/phases.h"
#include "core/plan.h"
#include "core/problem.h"
#include "cuda/gather_axes.h"

namespace convt2d::cuda {

// A choice of tile and its predicted time.
template <class Choice>
struct Candidate {
  Choice choice;
  double predicted_us;
};

// The candidate with the least predicted time, the first of equals.
template <class Candidate>
const Candidate& cheapest(const std::vector<Candidate>& found) {
  return *std::min_element(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return a.predicted_us < b.predicted_us;
  });
}

// Of a family that first looks for a reason to refuse, and then for candidates: refuse(problem, device), find(problem,
// device, reason), describe(problem, candidate). Every plan there is, in no order, or why there is none; and the best.
template <class Refuse, class Find, class Describe>
std::vector<Plan> all_plans(const Problem& problem, const Device& device, std::string& reason,
                            Refuse&& refuse, Find&& find, Describe&& describe) {
  std::vector<Plan> plans;
  reason = refuse(problem, device);
  if (!reason.empty()) return plans;
  for (const auto& candidate : find(problem, device, reason))
    plans.push_back(describe(problem, candidate));
  return plans;
}
template <class Refuse, class Find, class Describe>
Decision best_plan(const Problem& problem, const Device& device, Refuse&& refuse, Find&& find,
                   Describe&& describe) {
  std::string reason = refuse(problem, device);
  if (!reason.empty()) return Decision::decline(reason);
  reason = "no tile fits";
  const auto found = find(problem, device, reason);
  if (found.empty()) return Decision::decline(reason);
  return Decision::accept(describe(problem, cheapest(found)));
}

// For these, where `describe` is a function that wants to know the device too.
template <class Describe>
auto described_on(const Device& device, Describe& describe) {
  return [&device, &describe](const Problem& problem, const auto& candidate) {
    return describe(problem, device, candidate);
  };
}

// Places in a block's shared memory, one after the other. What is more than any block has stays a number.
struct SharedPlaces {
  int64_t end;  // of what has been taken

  int32_t take(int64_t bytes, int64_t alignment) {
    const int64_t start = round_up(end, alignment);
    end = std::min<int64_t>(start + bytes, INT32_MAX / 2);
    return static_cast<int32_t>(start);
  }
};

// For lists of what a choice may have in one of its fields.
template <class T, class Value>
void add_once(std::vector<T>& list, const Value& value) {
  const T added = static_cast<T>(value);
  if (std::find(list.begin(), list.end(), added) == list.end()) list.push_back(added);
}

// Both axes, but for the extent of x and the dilation along rows: not every kernel asks for these.
template <class Params>
void set_geometry(const Problem& problem, Params& params) {
  const Axis &h = problem.h, &w = problem.w;
  params.y_h = static_cast<int32_t>(h.out);
  params.y_w = static_cast<int32_t>(w.out);
  params.stride_h = static_cast<int32_t>(h.stride);
  params.stride_w = static_cast<int32_t>(w.stride);
  params.pad_h = static_cast<int32_t>(h.near_pad);
  params.pad_w = static_cast<int32_t>(w.near_pad);
  params.dilation_h = static_cast<int32_t>(h.dilation);
  params.kernel_h = static_cast<int32_t>(h.kernel);
  params.kernel_w = static_cast<int32_t>(w.kernel);
}

// Batch, groups and channels of a group.
template <class Params>
void set_extents(const Problem& problem, Params& params) {
  const bool forward = problem.direction == Direction::fwd;
  params.batch = static_cast<int32_t>(problem.batch);
  params.groups = static_cast<int32_t>(problem.groups);
  params.reduce = static_cast<int32_t>(forward ? problem.group_in() : problem.group_out());
  params.columns = static_cast<int32_t>(forward ? problem.group_out() : problem.group_in());
}

// The taps of both axes, `slots_h` x `slots_w` phases together. Returns why it cannot be done, or an empty string.
template <class Params>
std::string set_axes(const Problem& problem, int slots_h, int slots_w, Params& params) {
  const std::string reason = build_axis(problem, problem.h, slots_h, params.h);
  return reason.empty() ? build_axis(problem, problem.w, slots_w, params.w) : reason;
}

// The tile of a choice and how many of them cover all images, of `extent_h` x `extent_w` pixels.
template <class Choice, class Params>
void set_tiles(const Problem& problem, int64_t extent_h, int64_t extent_w, const Choice& choice,
               Params& params) {
  params.tile_n = choice.tile_n;
  params.tile_h = choice.tile_h;
  params.tile_w = choice.tile_w;
  params.tiles_n = static_cast<int32_t>(ceil_div(problem.batch, choice.tile_n));
  params.tiles_h = static_cast<int32_t>(ceil_div(extent_h, choice.tile_h));
  params.tiles_w = static_cast<int32_t>(ceil_div(extent_w, choice.tile_w));
}
// The same where what is covered are positions, whose axes are set.
template <class Choice, class Params>
void set_tiles(const Problem& problem, const Choice& choice, Params& params) {
  set_tiles(problem, position_extent(params.h), position_extent(params.w), choice, params);
}

// A block works on one combination of (group, column tile, phases) and walks tiles of positions.
template <class Params>
int64_t combinations(const Params& p) {
  return static_cast<int64_t>(p.groups) * p.column_tiles * p.h.groups * p.w.groups;
}
template <class Params>
int64_t tiles_of(const Params& p) {
  return static_cast<int64_t>(p.tiles_n) * p.tiles_h * p.tiles_w;
}

inline bool aligned(const void* pointer, size_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

// Pointers, and the strides of weights, which may have any.
template <class Params>
void set_tensors(const Problem& problem, const Args& args, Params& params) {
  const bool forward = problem.direction == Direction::fwd;
  params.source = forward ? args.x.data : args.y.data;
  params.destination = forward ? args.y.data : args.x.data;
  params.weight = args.w.data;
  params.bias = forward && problem.has_bias ? args.bias : nullptr;
  params.weight_group = static_cast<int32_t>(args.w.stride[0] * problem.group_in());
  params.weight_reduce = static_cast<int32_t>(args.w.stride[forward ? 0 : 1]);
  params.weight_column = static_cast<int32_t>(args.w.stride[forward ? 1 : 0]);
  params.weight_h = static_cast<int32_t>(args.w.stride[2]);
  params.weight_w = static_cast<int32_t>(args.w.stride[3]);
}

// Those and the strides of the others.
template <class Params>
void set_strided_tensors(const Problem& problem, const Args& args, Params& params) {
  set_tensors(problem, args, params);
  const bool forward = problem.direction == Direction::fwd;
  const TensorRef& source = forward ? args.x : args.y;
  const TensorRef& destination = forward ? args.y : args.x;
  for (int i = 0; i < 4; ++i) {
    params.source_stride[i] = static_cast<int32_t>(source.stride[i]);
    params.destination_stride[i] = static_cast<int32_t>(destination.stride[i]);
  }
}

// And wide loads of weights where their strides allow them.
template <class Params>
void set_operands(const Problem& problem, const Args& args, Params& params) {
  set_strided_tensors(problem, args, params);
  const bool forward = problem.direction == Direction::fwd;
  const int64_t vector = 16 / element_size(problem.dtype);
  params.weight_vectors = args.w.stride[1] == 1 && !forward && params.reduce % vector == 0 &&
                          args.w.stride[0] % vector == 0 && args.w.stride[2] % vector == 0 &&
                          args.w.stride[3] % vector == 0 && aligned(args.w.data, 16);
  params.weight_columns_first = params.weight_vectors || params.weight_column <= params.weight_w;
}

}  // namespace convt2d::cuda
