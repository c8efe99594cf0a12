// Where families cut the reduction of grad_weight: partial sums of dW in the workspace, and their sum.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "core/args.h"
#include "core/phases.h"
#include "core/plan.h"
#include "core/problem.h"
#include "core/search.h"
#include "cuda/cuda_families.h"
#include "cuda/gather_params.h"
#include "cuda/grad_bias/grad_bias.h"

namespace convt2d::cuda {

// How the reduction is cut follows from the shape alone, so the tile may not depend on the GPU either: it is the best
// one on this.
constexpr char kReferenceGpu[] = "h200";
inline const Device& reference_gpu() {
  static const Device reference = invented_device(kReferenceGpu);
  return reference;
}

// What a search on the reference starts with: the best that others take on the GPU at hand, if that is one. A copy, since a search's
// own times are without a bias.
inline Best best_on_reference(const Device& device, Best best) {
  const auto rates = [](const Device& d) {
    return std::array{double(d.sm_count),  double(d.smem_optin), double(d.smem_per_sm),
                      d.copy_bytes_per_us, d.fma_f32_per_us,     d.mma_f16_per_us,
                      d.mma_tf32_per_us,   d.matmul_f16_per_us,  d.matmul_tf32_per_us};
  };
  return rates(device) == rates(reference_gpu()) ? best : Best{};
}

// Bytes of all pieces together, at most.
constexpr int64_t kWorkspaceLimit = int64_t{32} << 20;

// Bytes of one piece's partial sums, [kh][kw][ci][co] in fp32 and whole vectors.
inline int64_t weight_bytes(const Problem& problem) {
  const int64_t elements =
      problem.in_channels * problem.group_out() * problem.h.kernel * problem.w.kernel;
  return ceil_div(elements, 4) * 16;
}

// Partial sums of so many pieces; a single one is dW itself.
inline int64_t partial_bytes(const Problem& problem, int64_t pieces) {
  return pieces > 1 ? weight_bytes(problem) * pieces : 0;
}

// Numbers of pieces worth looking at, for `combinations` blocks' worth of dW and so many K tiles: as few as are good for
// the sums' accuracy, or as fill the GPU once to four times.
inline std::vector<int> splits_worth_trying(const Problem& problem, int64_t combinations,
                                            int64_t tiles, int64_t tile_pixels) {
  constexpr int64_t kMostSummed = 65536;  // pixels, in one register
  const int64_t room = std::max<int64_t>(1, kWorkspaceLimit / weight_bytes(problem));
  const int64_t most = std::min({room, tiles, INT32_MAX / combinations});
  const int64_t least = std::min(most, ceil_div(tiles * tile_pixels, kMostSummed));
  std::vector<int> splits = {static_cast<int>(least)};
  for (int64_t blocks : {132, 264, 396, 528})
    add_once(splits, std::max(least, std::min(most, blocks / combinations)));
  return splits;
}

// For all_plans() and best_plan(): candidates are those of the reference; their plans' times those of the GPU at hand.
// `find` and `describe` are functions.
template <class Find>
auto on_reference(Find& find) {
  return [&find](const Problem& problem, const Device&, std::string& reason) {
    return find(problem, reference_gpu(), reason);
  };
}
template <class Describe>
auto at_hand(const Device& device, Describe& describe) {
  return [&device, &describe](const Problem& problem, const auto& candidate) {
    return describe(problem, device, candidate.choice);
  };
}

// What plans of grad_weight that are cut so have in common; a bias gradient, if wanted, has launches of `launch_us`.
inline Plan weight_sum_plan(const Problem& problem, const Device& device, int row, int split,
                            double predicted_us, double launch_us) {
  Plan plan;
  plan.row = row;
  plan.split = split;
  plan.workspace_bytes = partial_bytes(problem, split);
  plan.predicted_us = predicted_us;
  add_grad_bias(problem, device, launch_us, plan);
  return plan;
}

// What kernels of grad_weight are told of a problem: batch, channels of a group, the extent of x, numbers of a piece.
template <class Params>
void set_weight_extents(const Problem& problem, Params& params) {
  params.piece_floats = static_cast<int32_t>(weight_bytes(problem) / 4);
  params.batch = static_cast<int32_t>(problem.batch);
  params.groups = static_cast<int32_t>(problem.groups);
  params.rows = static_cast<int32_t>(problem.group_in());
  params.columns = static_cast<int32_t>(problem.group_out());
  params.x_h = static_cast<int32_t>(problem.h.in);
  params.x_w = static_cast<int32_t>(problem.w.in);
}

// Pointers, once the split is set.
template <class Params>
void set_weight_tensors(const Args& args, Params& params) {
  params.x = args.x.data;
  params.y = args.y.data;
  params.weight = args.w.data;
  params.partials = params.split > 1 ? static_cast<float*>(args.workspace) : nullptr;
}
// And then steps of where sums go, dW or a piece: ci, co, kh, kw.
template <class Params>
std::array<int32_t, 4> weight_steps(const Args& args, const Params& params) {
  const int32_t row = params.groups * params.rows * params.columns;
  if (params.partials) return {params.columns, 1, params.kernel_w * row, row};
  std::array<int32_t, 4> steps;
  for (int i = 0; i < 4; ++i) steps[i] = static_cast<int32_t>(args.w.stride[i]);
  return steps;
}

// Adds up `pieces` partial sums of dW in a fixed order. Reads args.workspace, writes args.w. `early`: the kernel before
// it in the stream wrote the partial sums and may let it start (device/successor.cuh).
void launch_weight_sum(const Problem& problem, int pieces, const Args& args, bool early = false);
// The same of partial sums in the order of a dW without gaps, [ci][co][kh][kw].
void launch_dense_weight_sum(const Problem& problem, int pieces, const Args& args,
                             bool early = false);

// What follows a kernel of grad_weight: the sum of its pieces, if there are several, and the bias gradient, if wanted.
using WeightSum = void(const Problem& problem, int pieces, const Args& args, bool early);
template <class Params>
void finish_grad_weight(const Problem& problem, const Params& params, const Args& args,
                        WeightSum* sum = launch_weight_sum, bool early = true) {
  if (params.partials) sum(problem, params.split, args, early);
  if (problem.has_bias) launch_grad_bias(problem, args);
}

}  // namespace convt2d::cuda
