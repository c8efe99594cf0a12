#include "cuda/twill/twill_plan.h"

#include <algorithm>
#include <cmath>

#include "core/phases.h"
#include "cuda/cuda_families.h"
#include "cuda/gather_params.h"
#include "cuda/tensor_map.h"

namespace convt2d::cuda::twill {
namespace {

// Cycles by a tile's pixels, as measured (H200, 2026-11-29, 15 layers, within 10 %): of a stage's products, and of a tile beside them,
// which is adding up and what waits for that; boxes of 32 bytes take longer, and runs by rows of x.
constexpr double kClock = 1700;  // cycles a microsecond
constexpr double kStage[kTileCount] = {1580, 1090, 1360, 1580},
                 kTile[kTileCount] = {3700, 3200, 1600, 7000};
constexpr double kNarrow = 1000, kRunRow = 2400;
constexpr double kLaunch = 6;         // us: launch, first boxes, last stores
constexpr double kMemoryRate = 0.85;  // of the copy rate
constexpr double kBeside = 0.03;      // of the lesser of work and bytes
constexpr int kLeastStages = 2;

struct Choice {
  int row, walkers, stages;
};

// All but pointers.
Params shape(const Problem& problem, const Choice& choice) {
  Params p{};
  const auto number = [](int64_t value) { return static_cast<int32_t>(value); };
  p.groups = number(problem.groups);
  p.reduce = number(problem.group_in()), p.columns = number(problem.group_out());
  p.x_h = number(problem.h.in), p.x_w = number(problem.w.in), p.y_h = number(problem.h.out);
  p.y_w = number(problem.w.out);
  p.pad_h = number(problem.h.near_pad), p.pad_w = number(problem.w.near_pad);
  p.first_row = p.pad_h - 1;
  const int pixels = kTiles[choice.row].pixels;
  p.rows = std::max(1, std::min(pixels / p.x_w, p.x_h - p.first_row));
  // All of a row, or strips that have room for one more pixel each: as few as there can be, and of these the largest boxes.
  if (p.x_w <= pixels) {
    p.own = p.x_w;
    for (p.box = kMostBox; p.own / kEight % p.box != 0;) p.box /= 2;
  } else {
    for (int box = 1; box <= kMostBox; box *= 2) {
      const int columns = box * kEight, own = (pixels - 1) / columns * columns;
      if (box == 1 || ceil_div(p.x_w, own) <= ceil_div(p.x_w, p.own)) p.own = own, p.box = box;
    }
  }
  for (int e = 0; e < kEights; e += p.x_w / kEight) p.row_starts |= 1u << e;
  const int eights = p.own / kEight;
  p.eights = p.rows * eights;
  // Rows of a channel's runs are as far apart as in memory, but for whole 16 bytes.
  constexpr int kVector = kUnit * 2;
  const int run = (p.own * kStride + 1) * 2, apart = p.y_w * kStride * 2;
  p.run_step = run + ((apart - run) % kVector + kVector) % kVector;
  p.run_pitch = number(round_up(kVector + p.rows * p.run_step, kVector));
  const bool runs = kTiles[choice.row].runs;
  p.out_bytes = runs ? kOutChannels * p.run_pitch : kOutBytes;
  for (int e = 0; e < kEights; ++e) {
    const int row = e / eights, column = e % eights;
    // What is no tile's is behind what is.
    const int box = row < p.rows ? column / p.box * p.rows + row : e / p.box;
    p.place[e] = runs ? row * p.run_step + column * kEightBytes
                      : (box * kOutChannels * p.box + e % p.box) * kEightBytes;
  }
  const int64_t row_tiles = ceil_div(p.columns, kChannels), strips = ceil_div(p.x_w, p.own),
                blocks = ceil_div(p.x_h - p.first_row, p.rows);
  p.items =
      number(std::min<int64_t>(problem.batch * p.groups * blocks * strips * row_tiles, INT32_MAX));
  p.walkers = choice.walkers;
  p.chunks = number(ceil_div(p.reduce, kDepth));
  p.stages = choice.stages;
  p.shared_bytes = kStagesAt + p.stages * kStageBytes + kConsumers / 32 * p.out_bytes;
  p.by_row_tiles = FastDivide(row_tiles);
  p.by_strips = FastDivide(strips);
  p.by_blocks = FastDivide(blocks);
  p.by_groups = FastDivide(p.groups);
  return p;
}

// Boxes of y: rows of whole 16 bytes, of which every second one from the first on has one tap row.
bool is_doubled(const Problem& problem) {
  return problem.h.near_pad == 1 && problem.w.near_pad == 1 && problem.h.out >= kStride &&
         problem.w.out == problem.w.in * kStride;
}

double predict(const Problem& problem, const Device& device, const Params& p, int row) {
  const double tile = p.chunks * kStage[row] + kTile[row] +
                      (kTiles[row].runs ? kRunRow * p.rows
                       : p.box == 1     ? kNarrow
                                        : 0);
  const double busy_us = std::ceil(double(p.items) / p.walkers) * tile / kClock;
  const double memory_us = tensor_bytes(problem) / (kMemoryRate * device.copy_bytes_per_us);
  return kLaunch + std::max(busy_us, memory_us) + kBeside * std::min(busy_us, memory_us);
}

std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason) {
  std::vector<Candidate<Choice>> found;
  for (int row = 0; row < kTileCount; ++row) {
    if (!kTiles[row].runs && !is_doubled(problem)) continue;
    Choice choice{row, 1, 0};
    Params p = shape(problem, choice);
    choice.stages = std::min((device.smem_optin - p.shared_bytes) / kStageBytes, kMostStages);
    if (choice.stages < kLeastStages) {
      reason = "no room for " + std::to_string(kLeastStages) + " stages";
      continue;
    }
    choice.walkers = p.walkers = std::min(p.items, device.sm_count);
    found.push_back({choice, predict(problem, device, p, row)});
  }
  return found;
}

Plan plan_of(const Problem& problem, const Candidate<Choice>& candidate) {
  const Choice& c = candidate.choice;
  const Params p = shape(problem, c);
  Plan plan;
  plan.row = c.row;
  plan.predicted_us = candidate.predicted_us;
  plan.detail[0] = c.walkers;
  plan.detail[1] = c.stages;
  plan.note = "64 channels x " + std::to_string(p.rows) + " rows of " + std::to_string(p.own) +
              " pixels, K 32 x " + std::to_string(c.stages) + " stages, " +
              std::to_string(c.walkers) + " blocks";
  return plan;
}

std::string refusal(const Problem& problem, const Device& device) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  if (!device.has_wgmma) return "twill is for sm_90a";
  if (problem.direction != Direction::fwd) return "twill is for forward";
  if (element_size(problem.dtype) != 2) return "twill is for fp16 and bf16";
  if (problem.x_layout != Layout::nchw || problem.y_layout != Layout::nchw ||
      problem.w_layout != Layout::nchw)
    return "twill is for NCHW";
  for (const Axis& axis : {problem.h, problem.w})
    if (axis.kernel != kKernel || axis.stride != kStride || axis.dilation != 1 ||
        axis.near_pad < 0 || axis.near_pad > 1)
      return "twill is for kernels of 3 x 3 with stride 2 and padding 0 or 1";
    // Outputs that taps reach.
    else if (axis.out > axis.in * kStride + 1 - axis.near_pad)
      return "outputs, " + number(axis.out) + " of a pad of " + number(axis.near_pad) +
             ", are not those of " + number(axis.in) + " pixels";
  if (problem.w.in % 8 != 0)
    return "rows of x have " + number(problem.w.in) + " pixels, which are no eights";
  if (problem.group_out() % 8 != 0)
    return "a group has " + number(problem.group_out()) + " output channels, which are no eights";
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
  Params p = shape(problem, {plan.row, plan.detail[0], plan.detail[1]});
  p.y = args.y.data, p.x = args.x.data, p.w = args.w.data;
  p.bias = problem.has_bias ? args.bias : nullptr;
  return p;
}

Maps maps_of(const Problem& problem, const Params& p, const Args& args) {
  // Every second row of y, from the second one on or from the first: column, channel, row, group, image.
  const auto map_of_y = [&](int first) {
    const int64_t row = problem.w.out * 2, plane = row * p.y_h;
    return encode(
        {static_cast<const char*>(args.y.data) + first * row,
         2,
         5,
         {problem.w.out, p.columns, (p.y_h - first + 1) / kStride, p.groups, problem.batch},
         {2, plane, row * kStride, plane * p.columns, plane * problem.out_channels},
         {p.box * kEight * kStride, kOutChannels, p.rows, 1, 1},
         {1, 1, 1, 1, 1}});
  };
  const bool doubled = is_doubled(problem);
  return {encode_channels(args.x.data, problem.h.in * problem.w.in * 2, p.reduce, p.groups,
                          problem.batch, kLineNumbers, kDepth),
          encode_channels(args.w.data, int64_t{p.columns} * kTaps * 2, p.reduce, p.groups, 1,
                          kLineNumbers, kDepth),
          {doubled ? map_of_y(1) : CUtensorMap{}, doubled ? map_of_y(0) : CUtensorMap{}}};
}

}  // namespace convt2d::cuda::twill
