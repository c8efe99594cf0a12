#include "cuda/crimp/crimp_plan.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/phases.h"
#include "cuda/cuda_families.h"
#include "cuda/gather_params.h"
#include "cuda/tensor_map.h"

namespace convt2d::cuda::crimp {
namespace {

// pleat's, but for what a tile takes beside its products, which is counted instructions: eight layers, 18 to 53 us (H200, 2026-11-29), within
// 15 %, but for one of 24 %.
constexpr double kClock = 1700;       // cycles a microsecond
constexpr double kLaunch = 6;         // us: launch, first boxes, last stores
constexpr double kTile = 200;         // cycles of a tile beside its products,
constexpr double kTileEight = 7;      // and of eight pixels of a warpgroup
constexpr double kTensorTime = 1.08;  // over an instruction's least
constexpr double kShallow = 40;       // cycles of a chunk of two instructions
constexpr double kArriving = 45;      // bytes a cycle that come to a multiprocessor
constexpr double kMemoryRate = 0.85;  // of the copy rate
constexpr double kBeside = 0.1;       // of the lesser of work and bytes

struct Choice {
  int eights, teams, slices, segments, stages, walkers;
};

// All but pointers.
Params shape(const Problem& problem, const Choice& choice) {
  const Axis &h = problem.h, &w = problem.w;
  Params p{};
  const auto number = [](int64_t value) { return static_cast<int32_t>(value); };
  p.groups = number(problem.groups), p.columns = number(problem.group_out());
  p.stride = number(h.stride), p.pad = number(h.near_pad), p.x_h = number(h.in);
  p.y_h = number(h.out), p.width = number(w.out);
  p.teams = choice.teams;
  p.row_tiles = number(ceil_div(p.columns * 2 * p.stride, p.teams * kRows));
  p.strips = number(ceil_div(w.in, choice.eights * 8));
  p.segment_rows = number(ceil_div(h.in, choice.segments));
  p.segments = number(ceil_div(h.in, p.segment_rows));
  const int64_t items = problem.batch * p.segments * p.strips * p.groups * p.row_tiles;
  p.items = number(std::min<int64_t>(items, INT32_MAX));
  p.walkers = choice.walkers;
  p.slices = choice.slices;
  p.chunks = number(ceil_div(problem.group_in(), p.slices * kSlice));
  const int line = p.slices * kSlice * kLine, warps = p.teams * 4,
            last = box_bytes(last_eights(choice.eights));
  p.stages = choice.stages;
  p.stage_bytes = boxes_of(choice.eights) * line;
  p.weight_bytes = p.teams * line;
  constexpr int kAlignment = 1024;  // of what is swizzled
  SharedPlaces places{kOutAt};
  places.take(warps * (box_bytes(choice.eights) - last), kAlignment);
  p.last_at = places.take(warps * last, kAlignment);
  p.weights_at = places.take(int64_t{p.chunks} * p.weight_bytes, kAlignment);
  p.stages_at = places.take(p.stages * p.stage_bytes, kAlignment);
  p.shared_bytes = number(places.end);
  p.by_row_tiles = FastDivide(p.row_tiles);
  p.by_groups = FastDivide(p.groups);
  p.by_strips = FastDivide(p.strips);
  p.by_segments = FastDivide(p.segments);
  return p;
}

double predict(const Problem& problem, const Device& device, const Params& p,
               const Choice& choice) {
  const double tiles = p.segment_rows + (p.segments > 1),
               blocks = std::min(p.walkers, device.sm_count), rounds = std::ceil(p.items / blocks),
               loads = std::ceil(p.walkers / blocks);
  const double instruction = std::max(choice.eights * 4 * kTensorTime, 16. + choice.eights * 2),
               product = p.slices * p.teams * instruction,
               multiply = p.chunks * (product + (p.slices == kMostSlices ? 0 : kShallow)),
               tile = multiply + kTile + kTileEight * choice.eights * p.teams,
               x = p.chunks * p.stage_bytes / kArriving,
               weights = p.chunks * p.weight_bytes / kArriving,
               busy_us =
                   (rounds * tiles * std::max(tile, x) + loads * std::max(0., weights + x - tile)) /
                   kClock;
  const double memory_us = tensor_bytes(problem) / (kMemoryRate * device.copy_bytes_per_us);
  return kLaunch + std::max(busy_us, memory_us) + kBeside * std::min(busy_us, memory_us);
}

std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason) {
  constexpr int kLeastStages = 3, kMostSegments = 16, kMostRounds = 8;
  std::vector<Candidate<Choice>> found;
  // Blocks that walk items: a multiple of the items of different weights.
  const auto walkers_of = [&](const Params& p) {
    const int kinds = p.row_tiles * p.groups;
    return kinds > device.sm_count ? p.items : std::min(p.items, device.sm_count / kinds * kinds);
  };
  const auto consider = [&](Choice choice) {
    for (int before = 0; choice.segments <= std::min<int64_t>(kMostSegments, problem.h.in);
         ++choice.segments) {
      Params p = shape(problem, choice);
      if (p.segments == before) continue;
      before = p.segments;
      choice.stages = std::min((device.smem_optin - p.shared_bytes) / p.stage_bytes, kMostStages);
      if (choice.stages < kLeastStages) return;
      choice.walkers = walkers_of(p);
      p.walkers = choice.walkers;
      found.push_back({choice, predict(problem, device, p, choice)});
      if (p.items > kMostRounds * device.sm_count) return;
      choice.stages = 0;
    }
  };
  int64_t strips = INT64_MAX;
  for (int row = 0; row < kWidths; ++row) {
    const int eights = eights_of(row);
    const int64_t before = std::exchange(strips, ceil_div(problem.w.in, eights * 8));
    if (strips == before) continue;  // wider ones than those before, as many
    for (int teams = 1; teams <= most_teams(eights); ++teams)
      for (const int slices : {kMostSlices, kMostSlices / 2})
        consider({eights, teams, slices, 1, 0, 1});
  }
  if (found.empty()) reason = "no room for " + std::to_string(kLeastStages) + " stages";
  return found;
}

Plan plan_of(const Problem& problem, const Candidate<Choice>& candidate) {
  const Choice& c = candidate.choice;
  const Params p = shape(problem, c);
  const auto number = [](int value) { return std::to_string(value); };
  Plan plan;
  plan.row = c.eights / 2 - 1;
  plan.predicted_us = candidate.predicted_us;
  const int detail[] = {c.teams, c.slices, c.segments, c.stages, c.walkers};
  std::copy(std::begin(detail), std::end(detail), plan.detail);
  plan.note = number(c.teams * kRows) + " rows x " + number(c.eights * 8) + " pixels, K " +
              number(c.slices * kSlice) + " x " + number(c.stages) + " stages, " +
              number(p.segments) + " segments, " + number(c.walkers) + " blocks";
  return plan;
}

Choice choice_of(const Plan& plan) {
  const int32_t* const d = plan.detail;
  return {eights_of(plan.row), d[0], d[1], d[2], d[3], d[4]};
}

std::string refusal(const Problem& problem, const Device& device) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  const Axis &h = problem.h, &w = problem.w;
  if (!device.has_wgmma) return "crimp is for sm_90a";
  if (problem.direction != Direction::fwd) return "crimp is for forward";
  if (element_size(problem.dtype) != 2) return "crimp is for fp16 and bf16";
  if (problem.x_layout != Layout::nchw || problem.y_layout != Layout::nchw ||
      problem.w_layout != Layout::nchw)
    return "crimp is for NCHW";
  if (w.kernel != 1 || w.stride != 1 || w.near_pad != 0 || w.out != w.in)
    return "crimp is for kernels of one column with stride 1 and no padding";
  if ((h.stride != 2 && h.stride != 4 && h.stride != 8) || h.kernel != 2 * h.stride ||
      h.dilation != 1)
    return "crimp is for kernels of two strides of 2, 4 or 8";
  // Outputs that two rows of taps reach, but for the padding.
  if (h.near_pad < 0 || h.near_pad > h.stride || h.out + h.near_pad > (h.in + 1) * h.stride)
    return "rows of y, " + number(h.out) + " of a pad of " + number(h.near_pad) +
           ", are not those of " + number(h.in) + " rows of x";
  if (w.in % 8 != 0) return "rows of " + number(w.in) + " pixels are no whole eights";
  if (problem.group_out() * h.kernel % 8 != 0)
    return "rows of w, " + number(problem.group_out() * h.kernel) + ", are no whole eights";
  if (problem.wide_index) return "a tensor has more than 2^31 elements";
  return {};
}

}  // namespace

std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason) {
  return all_plans(problem, device, reason, refusal, candidates, plan_of);
}

Decision plan(const Problem& problem, const Device& device) {
  return best_plan(problem, device, refusal, candidates, plan_of);
}

Params params_of(const Problem& problem, const Plan& plan, const Args& args) {
  Params p = shape(problem, choice_of(plan));
  p.y = args.y.data;
  p.bias = problem.has_bias ? args.bias : nullptr;
  return p;
}

// y in order of column, row, channel out, group, image.
Maps maps_of(const Problem& problem, const Plan& plan, const Params& p, const Args& args) {
  const int64_t width = problem.w.in, y_plane = problem.h.out * width, reduce = problem.group_in();
  const int depth = p.slices * kSlice;
  const auto y_map = [&](int eights) {
    return encode(
        {args.y.data,
         2,
         5,
         {width, problem.h.out, p.columns, p.groups, problem.batch},
         {2, width * 2, y_plane * 2, y_plane * 2 * p.columns, y_plane * 2 * problem.out_channels},
         {eights * 8, p.stride, kWarpLines / p.stride, 1, 1},
         {1, 1, 1, 1, 1},
         is_swizzled(eights)});
  };
  return {
      encode_rows(args.x.data, width, p.x_h, reduce, problem.batch * p.groups, kLineNumbers, depth),
      encode_channels(args.w.data, p.columns * problem.h.kernel * 2, reduce, p.groups, 1,
                      kLineNumbers, depth),
      y_map(kLineEights), y_map(last_eights(eights_of(plan.row)))};
}

}  // namespace convt2d::cuda::crimp
