// mite: what it refuses, and which choices there are.
#include "cuda/mite/mite_plan.h"

#include <algorithm>
#include <cstdio>

#include "core/phases.h"
#include "cuda/gather_params.h"
#include "cuda/grad_bias/grad_bias.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda::mite {
namespace {

constexpr double kBiasLaunch = 5;
constexpr int64_t kMostChannels = 64;   // of a group
constexpr int64_t kMostWeights = 2048;  // of a group's dW
constexpr int64_t kTilePixels = 2048;

// Widths that cover an extent in equal parts, of at most `most`.
std::vector<int> widths_of(int64_t extent, int64_t most) {
  std::vector<int> widths;
  for (int parts : {1, 2, 3, 4, 6, 8, 12, 16, 32})
    if (const int64_t width = ceil_div(extent, parts); width <= most) add_once(widths, width);
  if (widths.empty())
    widths = {static_cast<int>(most), static_cast<int>(most / 2), static_cast<int>(most / 4)};
  return widths;
}

std::vector<Candidate<Choice>> gather_candidates(const Problem& problem, const Device& device,
                                                 std::string& reason) {
  std::vector<Candidate<Choice>> found;
  const bool forward = problem.direction == Direction::fwd;
  const bool pixels = (forward ? problem.y_layout : problem.x_layout) == Layout::nhwc;
  const int64_t columns = forward ? problem.group_out() : problem.group_in();
  const int64_t rows = forward ? ceil_div(problem.h.out, problem.h.stride) : problem.h.in;
  const int64_t width = forward ? ceil_div(problem.w.out, problem.w.stride) : problem.w.in;
  const int64_t phases = forward ? std::min(problem.w.stride, problem.w.out) : 1;
  constexpr int64_t kMost = kThreads * kPositions;
  for (int row = 0; row < kFormCount; ++row)
    for (int merged = 0; merged < (pixels && problem.groups == 1 ? 2 : 1); ++merged) {
      const Form form = kForms[row];
      const int64_t channels = !pixels ? form.runs : merged ? form.run / phases : form.run;
      const bool fits = !pixels  ? phases <= form.run
                        : merged ? form.runs == 1 && columns <= channels
                                 : phases <= form.runs;
      if (!fits) {
        if (found.empty()) reason = std::to_string(phases) + " phases of rows are too many";
        continue;
      }
      const int tile_columns = static_cast<int>(std::min(columns, channels));
      for (const int tile_w : widths_of(width, kMost)) {
        const int64_t most = std::clamp<int64_t>(kMost / tile_w, 1, rows);
        std::vector<int> heights;
        for (const int64_t height : {most, ceil_div(most, 2)})
          add_once(heights, ceil_div(rows, ceil_div(rows, height)));
        for (const int tile_h : heights) {
          const Choice choice{row, tile_h, tile_w, tile_columns, merged};
          GatherParams p;
          const std::string why = shape_gather(problem, choice, p);
          if (why.empty()) {
            found.push_back({choice, predict_gather(problem, device, choice, p)});
          } else if (found.empty()) {
            reason = why;
          }
        }
      }
    }
  return found;
}

std::vector<Candidate<Choice>> weight_candidates(const Problem& problem, const Device& device,
                                                 std::string& reason) {
  std::vector<Candidate<Choice>> found;
  const int64_t rows = problem.h.in, width = problem.w.in;
  for (int row = 0; row < kSumsCount; ++row)
    for (const int tile_w : widths_of(width, 256)) {
      const int64_t most = std::clamp<int64_t>(kTilePixels / tile_w, 1, rows);
      std::vector<int> heights;
      for (int64_t height = most; height > 0; height = height * 2 / 3)
        add_once(heights, ceil_div(rows, ceil_div(rows, height)));
      for (const int tile_h : heights) {
        const Choice choice{row, tile_h, tile_w, 0, 0};
        WeightParams p;
        const std::string why = shape_weight(problem, choice, p);
        if (why.empty()) {
          found.push_back({choice, predict_weight(problem, device, choice, p)});
        } else if (found.empty()) {
          reason = why;
        }
      }
    }
  return found;
}

std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason) {
  if (problem.direction != Direction::grad_weight)
    return gather_candidates(problem, device, reason);
  // How the reduction is cut may not depend on the GPU.
  return weight_candidates(problem, reference_gpu(), reason);
}

Plan plan_of(const Problem& problem, const Device& device, const Choice& choice) {
  Plan plan;
  plan.row = choice.row;
  plan.detail[kTileH] = choice.tile_h;
  plan.detail[kTileW] = choice.tile_w;
  plan.detail[kTileColumns] = choice.tile_columns;
  plan.detail[kMerged] = choice.merged;
  char note[160];
  if (problem.direction != Direction::grad_weight) {
    GatherParams p;
    shape_gather(problem, choice, p);
    plan.predicted_us = predict_gather(problem, device, choice, p);
    std::snprintf(note, sizeof note, "tile %dx%d, %d channels, runs %d x %d, %d blocks of %d bytes",
                  choice.tile_h, choice.tile_w, choice.tile_columns, kForms[choice.row].runs,
                  kForms[choice.row].run, p.blocks, p.shared_bytes);
  } else {
    WeightParams p;
    shape_weight(problem, choice, p);
    plan.split = p.pieces;
    plan.workspace_bytes = partial_bytes(problem, p.pieces);
    plan.predicted_us = predict_weight(problem, device, choice, p);
    plan.detail[kEarly] = device.has_wgmma;  // there the second pass may start early
    add_grad_bias(problem, device, kBiasLaunch, plan);
    std::snprintf(
        note, sizeof note,
        "tile %dx%d, warps of %d channels x %d taps, %d parts, split %d, %d blocks of %d bytes",
        choice.tile_h, choice.tile_w, kSums[choice.row].channels, kSums[choice.row].taps, p.parts,
        p.pieces, p.blocks, p.shared_bytes);
  }
  plan.note = note;
  return plan;
}

std::string refusal(const Problem& problem, const Device&) {
  const auto text = [](int64_t value) { return std::to_string(value); };
  if (problem.dtype == DType::f64) return "mite is for fp16, bf16 and fp32";
  if (problem.wide_index) return "a tensor has more than 2^31 elements";
  if (problem.x_layout == Layout::strided || problem.y_layout == Layout::strided)
    return "mite is for dense tensors";
  if (problem.x_layout != problem.y_layout) return "x and y have different layouts";
  if (problem.group_in() == 1 && problem.groups > 1)
    return "one input channel of a group is left to depthwise";
  if (const int64_t most = std::max(problem.group_in(), problem.group_out()); most > kMostChannels)
    return "a group has " + text(most) + " channels, more than " + text(kMostChannels);
  const int64_t weights =
      problem.group_in() * problem.group_out() * problem.h.kernel * problem.w.kernel;
  if (weights > kMostWeights)
    return "a group has " + text(weights) + " weights, more than " + text(kMostWeights);
  // From a pixel to its taps, outside of dY as well: 32 bits hold it.
  for (const Axis& axis : {problem.h, problem.w})
    if (std::abs(axis.near_pad) + axis.in * axis.stride + axis.kernel * axis.dilation + axis.out >
        INT32_MAX / 4)
      return "taps lie too far apart";
  return {};
}

}  // namespace

std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason) {
  return all_plans(problem, device, reason, refusal, candidates,
                   [&](const Problem& of, const Candidate<Choice>& candidate) {
                     return plan_of(of, device, candidate.choice);
                   });
}

Decision plan(const Problem& problem, const Device& device) {
  return best_plan(problem, device, refusal, candidates,
                   [&](const Problem& of, const Candidate<Choice>& candidate) {
                     return plan_of(of, device, candidate.choice);
                   });
}

}  // namespace convt2d::cuda::mite
