#include "cuda/comb/comb_plan.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/phases.h"
#include "cuda/cuda_families.h"
#include "cuda/gather_params.h"
#include "cuda/strict_sums.h"
#include "cuda/weight_cost.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda::comb {
namespace {

// Counted, not measured.
constexpr double kClock = 1700;      // cycles a microsecond
constexpr double kLaunch = 5;        // us
constexpr double kBlock = 3500;      // cycles of a block beside its chunks
constexpr double kStored = 40;       // a sum of each thread, on its way out
constexpr double kTensorTime = 1.2;  // of what the rates of Device say
constexpr double kRound = 2;         // instructions of a warp: 32 words rounded
constexpr double kSplit = 6;         // or split
constexpr double kCopy = 8;          // 32 copies of dY,
constexpr double kCopyX = 5;         // of x,
constexpr double kNumber = 9;        // of single numbers of 16 bits, which go through registers
constexpr double kPixel = 70;        // and what a chunk takes beside them
constexpr double kL2Bytes = 30;      // a cycle
constexpr double kRest = 0.25;       // of what is less busy that is not hidden
// A chunk over what is counted, by 150 times (2026-11-23): where x comes in whole 16 bytes, and where it does not.
constexpr double kWholeChunk = 1.25, kOddChunk = 1.9;
// Where channels are neighbours: strict fp32 by 30 layers (2026-11-30), others by dcgan_g1, which took 0.7 of what the latter says.
constexpr double kChannelsChunk = 1.6, kStrictChannelsChunk = 1.04;
constexpr double kAlone = 1.3;        // a block that has a multiprocessor to itself
constexpr double kMemoryRate = 0.8;   // of the copy rate
constexpr double kBeside = 0.3;       // of the lesser of work and bytes
constexpr double kSum = 2.5;          // us, the second pass,
constexpr double kPartialRate = 1.5;  // and times the copy rate's time

struct Choice {
  int row, stages, split;
};

int64_t combinations(const Params& p) { return int64_t{p.groups} * p.row_blocks * p.column_blocks; }

void shape(const Problem& given, const Choice& choice, Params& p) {
  const Problem problem = as_one_channel(given);
  const Tile tile = kTiles[choice.row];
  const Axis &h = problem.h, &w = problem.w;
  const int64_t size = static_cast<int64_t>(element_size(problem.dtype)), plane = h.in * w.in;
  p = {};
  p.piece_floats = static_cast<int32_t>(weight_bytes(problem) / 4);
  p.groups = static_cast<int32_t>(problem.groups);
  p.rows = static_cast<int32_t>(problem.group_in());
  p.columns = static_cast<int32_t>(problem.group_out() * h.kernel * w.kernel);
  p.pixels = static_cast<int32_t>(problem.batch * plane);
  p.x_plane = static_cast<int32_t>(plane);
  p.x_image = static_cast<int32_t>(problem.in_channels * plane);
  set_geometry(problem, p);
  p.y_plane = static_cast<int32_t>(h.out * w.out);
  p.y_image = static_cast<int32_t>(problem.out_channels * h.out * w.out);
  p.x_piece = 16;
  while (p.x_piece > size && plane * size % p.x_piece != 0) p.x_piece /= 2;
  const bool last = problem.x_layout == Layout::nhwc;
  p.x_channel = last ? 1 : p.x_plane;
  if (last || plane == 1) {
    p.x_piece = static_cast<int32_t>(size);
    p.x_pixel = static_cast<int32_t>(problem.in_channels);
  }
  p.row_blocks = static_cast<int32_t>(ceil_div(p.rows, tile.rows));
  p.column_blocks = static_cast<int32_t>(ceil_div(p.columns, tile.columns));
  p.chunks = static_cast<int32_t>(ceil_div(p.pixels, kChunk));
  p.split = choice.split;
  p.stages = choice.stages;
  p.by_plane = FastDivide(plane);
  p.by_width = FastDivide(w.in);
}

// Blocks that share a multiprocessor's registers.
int side_by_side(const Problem& problem, Tile tile) {
  return sums(tile) > 64 || is_strict(problem) ? 1 : 2;
}

double predict(const Problem& problem, const Device& device, const Params& p, Tile tile) {
  const int size = static_cast<int>(element_size(problem.dtype));
  const bool half = size == 2, strict = is_strict(problem);
  const double products = strict ? 3 : 1;
  // Of a chunk, cycles of a multiprocessor: its tensor cores,
  const double rate = (half ? device.mma_f16_per_us : device.mma_tf32_per_us) / device.sm_count /
                      kClock / kTensorTime;
  const double mma = double(tile.rows) * tile.columns * kChunk * products / rate;
  // its four issuers,
  const double steps = kChunk * size / 32.0, m = row_tiles(tile), n = column_tiles(tile);
  const double words = 4 * m + 2 * n;
  const double step =
      m + n / 2 + m * n * products + (half ? 0 : words * (strict ? kSplit : kRound));
  const double pieces = double(tile.rows) * kChunk * size / p.x_piece / kThreads;
  const double bring =
      tile.columns / 32.0 * kCopy + pieces * (p.x_piece == 2 ? kNumber : kCopyX) + kPixel;
  const double issue = (steps * step + bring) * kWarps / 4;
  // shared memory, and what comes to it.
  const double copied = (tile.rows + tile.columns) * kChunk * size;
  const double shared = steps * kWarps * (4 * m + 2 * n) + copied / 128;
  const double l2 = copied / kL2Bytes;
  const double busiest = std::max({mma, issue, shared, l2});
  const double cycles = (p.x_pixel > 0    ? (strict ? kStrictChannelsChunk : kChannelsChunk)
                         : p.x_piece < 16 ? kOddChunk
                                          : kWholeChunk) *
                        (busiest + kRest * (mma + issue + shared + l2 - busiest));
  const double blocks = double(combinations(p)) * p.split;
  const double chunks = std::ceil(double(p.chunks) / p.split);
  const double rounds = std::ceil(blocks / device.sm_count);
  const double alone = rounds < 2 || side_by_side(problem, tile) < 2 ? kAlone : 1;
  const double busy_us = (rounds * (chunks * cycles * alone + kStored * sums(tile)) +
                          std::ceil(rounds / side_by_side(problem, tile)) * kBlock) /
                         kClock;
  return weight_us(problem, device, p.split, busy_us,
                   {kLaunch, kMemoryRate, kBeside, kSum, kPartialRate});
}

// Chunks under way: as many as leave room for a second block, where registers do. The sums are the same with any.
int stages_on(const Device& device, const Problem& problem, Tile tile) {
  const int chunk = stage_bytes(tile, static_cast<int>(element_size(problem.dtype)));
  const int room = side_by_side(problem, tile) > 1
                       ? std::min(device.smem_optin, device.smem_per_sm / 2 - 1024)
                       : device.smem_optin;
  return std::clamp(room / chunk, 2, kMostStages);
}

// Every tile: the same for all devices.
std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason) {
  std::vector<Candidate<Choice>> found;
  const int size = static_cast<int>(element_size(problem.dtype));
  for (int row = 0; row < tile_count(size, is_strict(problem)); ++row) {
    Params p;
    shape(problem, {row, 2, 1}, p);
    const int64_t combos = combinations(p);
    if (combos > INT32_MAX) {
      reason = "dW has too many tiles";
      continue;
    }
    for (int split : splits_worth_trying(problem, combos, p.chunks, kChunk)) {
      p.split = split;
      found.push_back({{row, 2, split}, predict(problem, device, p, kTiles[row])});
    }
  }
  return found;
}

Plan plan_of(const Problem& problem, const Device& device, Choice choice) {
  const Tile tile = kTiles[choice.row];
  choice.stages = stages_on(device, problem, tile);
  Params p;
  shape(problem, choice, p);
  Plan plan = weight_sum_plan(problem, device, choice.row, choice.split,
                              predict(problem, device, p, tile), kLaunch);
  plan.detail[0] = choice.stages;
  plan.note = std::to_string(tile.rows) + " channels x " + std::to_string(tile.columns) +
              " columns, x by " + std::to_string(p.x_piece) + " bytes, " +
              std::to_string(p.stages) + " stages, split " + std::to_string(p.split) + ", " +
              std::to_string(blocks_of(p)) + " blocks";
  return plan;
}

std::string refusal(const Problem& given, const Device& device) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  if (given.x_layout == Layout::nhwc && given.groups > 1)
    return "channels last, comb is for one group, not " + number(given.groups);
  const Problem problem = as_one_channel(given);
  const Axis &h = problem.h, &w = problem.w;
  if (!device.has_mma_f16 || !device.has_cp_async) return "comb is for sm_80 and up";
  if (problem.direction != Direction::grad_weight) return "comb is for grad_weight";
  if (problem.dtype == DType::f64) return "comb is for fp16, bf16 and fp32";
  if (problem.x_layout == Layout::strided || problem.y_layout != Layout::nchw ||
      problem.w_layout != Layout::nchw)
    return "comb is for NCHW, or all of it channels last";
  if (w.kernel % kTogether != 0) return "rows of " + number(w.kernel) + " taps are not whole fours";
  if (w.dilation != 1) return "taps lie " + number(w.dilation) + " apart";
  if (w.out % kTogether != 0) return "rows of dY, " + number(w.out) + ", are not whole fours";
  if (w.near_pad % kTogether != 0)
    return "a padding of " + number(w.near_pad) + " is not whole fours";
  if (w.stride % kTogether != 0 && w.in > 1)
    return "a stride of " + number(w.stride) + " is not whole fours";
  if (problem.wide_index) return "a tensor has more than 2^31 elements";
  if ((h.kernel - 1) * h.dilation > INT16_MAX || w.kernel > INT16_MAX)
    return "the kernel reaches over " + number((h.kernel - 1) * h.dilation) + " rows";
  // From a pixel to its taps, outside of dY as well: 32 bits hold it.
  if ((std::abs(h.near_pad) + h.in * h.stride + h.kernel * h.dilation) * w.out +
          std::abs(w.near_pad) + w.in * w.stride + w.kernel >
      INT32_MAX / 2)
    return "taps lie too far apart";
  if (problem.batch * h.in * w.in > INT32_MAX - kChunk) return "x has too many pixels";
  return sums_too_short(problem, kLeastSplitTerms);
}

}  // namespace

int shared_bytes(const Params& params, Tile tile, int element_bytes) {
  return params.stages * stage_bytes(tile, element_bytes);
}

Problem as_one_channel(Problem problem) {
  if (problem.x_layout != Layout::nhwc || problem.y_layout != Layout::nhwc ||
      problem.w_layout != Layout::nhwc || problem.groups != 1)
    return problem;
  const int64_t channels = problem.out_channels;
  for (int64_t* extent :
       {&problem.w.out, &problem.w.kernel, &problem.w.stride, &problem.w.near_pad})
    *extent *= channels;
  problem.out_channels = 1;
  problem.w_layout = problem.y_layout = Layout::nchw;
  problem.has_bias = 0;
  return problem;
}

int64_t blocks_of(const Params& params) { return combinations(params) * params.split; }

void shape_whole(const Problem& problem, Params& params) { shape(problem, {0, 2, 1}, params); }

std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason) {
  std::vector<Plan> plans = all_plans(problem, device, reason, refusal, on_reference(candidates),
                                      at_hand(device, plan_of));
  if (plans.empty()) return plans;
  std::string why_not;
  for (Plan& plan : line_plans(problem, device, why_not)) plans.push_back(std::move(plan));
  return plans;
}

Decision plan(const Problem& problem, const Device& device) {
  Decision decision =
      best_plan(problem, device, refusal, on_reference(candidates), at_hand(device, plan_of));
  if (!decision.accepted) return decision;
  Decision lines = line_plan(problem, device);
  return lines.accepted && lines.plan.predicted_us < decision.plan.predicted_us ? lines : decision;
}

Params params_of(const Problem& problem, const Plan& plan, const Args& args) {
  Params p;
  shape(problem, {plan.row, plan.detail[0], plan.split}, p);
  set_weight_tensors(args, p);
  return p;
}

}  // namespace convt2d::cuda::comb
