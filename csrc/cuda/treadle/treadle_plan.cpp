#include "cuda/treadle/treadle_plan.h"

#include <algorithm>
#include <cmath>

#include "core/phases.h"
#include "cuda/cuda_families.h"
#include "cuda/gather_params.h"
#include "cuda/strict_sums.h"
#include "cuda/tensor_map.h"
#include "cuda/weight_cost.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda::treadle {
namespace {

// Counted, 2026-11-24, not measured yet; kernels like this one took 1.1 to 1.5 times what was counted.
constexpr double kClock = 1700;       // cycles a microsecond
constexpr double kLaunch = 5.5;       // us
constexpr double kBlock = 8000;       // cycles of a block beside its steps,
constexpr double kStored = 60;        // a sum of each thread, on its way out
constexpr double kStep = 200;         // a step: barriers, and what follows them
constexpr double kWork = 1.28;        // of what is counted of its busiest part,
constexpr double kWorkSeven = 1.12;   // of words and seven taps (2026-12-01)
constexpr double kL2Bytes = 40;       // a cycle
constexpr double kJoined = 0.5;       // of a thread's sums of a batch: cycles that nothing hides
constexpr double kRest = 0.25;        // of what is less busy that is not hidden
constexpr double kMemoryRate = 0.9;   // of the copy rate
constexpr double kBeside = 0.05;      // of the lesser of work and bytes
constexpr double kSum = 2.5;          // us, the second pass,
constexpr double kPartialRate = 1.5;  // and times the copy rate's time

struct Choice {
  int row, split;
};

int64_t combinations(const Params& p) {
  return int64_t{p.groups} * p.row_blocks * p.tap_blocks * p.out_blocks * p.in_blocks;
}

void shape(const Problem& problem, const Choice& choice, Params& p) {
  const Tile tile = kTiles[choice.row];
  const Axis &h = problem.h, &w = problem.w;
  const auto count = [](int64_t all, int64_t each) {
    return static_cast<int32_t>(ceil_div(all, each));
  };
  p = {};
  set_weight_extents(problem, p);
  p.y_h = static_cast<int32_t>(h.out), p.y_w = static_cast<int32_t>(w.out);
  p.pad_h = static_cast<int32_t>(h.near_pad), p.pad_w = static_cast<int32_t>(w.near_pad);
  p.kernel_h = static_cast<int32_t>(h.kernel), p.kernel_w = static_cast<int32_t>(w.kernel);
  p.row_blocks = count(p.kernel_h, kRows);
  p.tap_blocks = count(p.kernel_w, tile.taps);
  p.out_blocks = count(p.columns, kChannels);
  p.in_blocks = count(p.rows, kChannels);
  p.line_pairs = count(p.y_h, 2);
  p.tiles = count(p.x_w, columns(tile));
  const int32_t last = p.x_w - (p.tiles - 1) * columns(tile), even = tile.share ? kGroups : 1;
  p.last_batches =
      static_cast<int32_t>(round_up(ceil_div(last, columns(tile) / batches(tile)), even));
  p.steps = p.batch * p.tiles * p.line_pairs;
  p.split = choice.split;
  p.by_pairs = FastDivide(p.line_pairs);
  p.by_tiles = FastDivide(p.tiles);
}

double predict(const Problem& problem, const Device& device, const Params& p, Tile tile) {
  // Of a step: instructions of 64 rows, their columns, and operands of dY.
  double columns = 0, operands = 0;
  for (const Role role : tile.role) {
    const double share = tile.share ? 0.5 : 1;
    columns += share * (role.full * 2 * kRows + role.pair * (kRows + 1)) * kChannels;
    operands += share * (role.full * 2 + role.pair);
  }
  const double slices = kStripBytes / kSliceBytes, products = tile.strict ? 3 : 1;
  columns *= products;
  const double x = kPairBytes * 2 * (1 + 1.0 / slots(tile));
  const double y = stage_bytes(tile, channels_last(problem));
  const double mma = slices * columns / 2;
  // What a second copy takes, exchanging words among lanes takes once more.
  const double filled = (tile.strict ? 2 : 1) * x + y * (2 - 1.0 / copies(tile));
  const double shared = slices * (columns * kSliceBytes / 128 + operands * 16) + filled / 128;
  const double l2 = (x + y / copies(tile)) / kL2Bytes;
  const double busiest = std::max({mma, shared, l2});
  const double work = tile.taps == 7 && !tile.halves ? kWorkSeven : kWork;
  const double cycles = work * busiest + kRest * (mma + shared + l2 - busiest) + kStep +
                        (tile.strict ? kJoined * batches(tile) * kChannels * (kRows + 1) / 2 : 0);
  const double blocks = double(combinations(p)) * p.split;
  const double steps = std::ceil(double(p.steps) / p.split);
  const double busy_us = std::ceil(blocks / device.sm_count) *
                         (kBlock + kStored * block_sums(tile) / kConsumers + steps * cycles) /
                         kClock;
  return weight_us(problem, device, p.split, busy_us,
                   {kLaunch, kMemoryRate, kBeside, kSum, kPartialRate});
}

// Every tile, in no order: the same for all devices. `reason` says why there is none.
std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason) {
  std::vector<Candidate<Choice>> found;
  const bool strict = is_strict(problem);
  for (int row = 0; row < kTileCount; ++row) {
    const Tile tile = kTiles[row];
    if (tile.strict != strict || size(tile) != element_size(problem.dtype)) continue;
    Choice choice{row, 1};
    Params p;
    shape(problem, choice, p);
    if (combinations(p) > INT32_MAX) {
      reason = "dW has too many tiles";
      continue;
    }
    for (int split :
         splits_worth_trying(problem, combinations(p), p.steps, int64_t{2} * columns(tile))) {
      p.split = choice.split = split;
      found.push_back({choice, predict(problem, device, p, tile)});
    }
  }
  return found;
}

Plan plan_of(const Problem& problem, const Device& device, const Choice& choice) {
  const Tile tile = kTiles[choice.row];
  Params p;
  shape(problem, choice, p);
  Plan plan = weight_sum_plan(problem, device, choice.row, choice.split,
                              predict(problem, device, p, tile), kLaunch);
  plan.note = std::to_string(kChannels) + " x " + std::to_string(kChannels) + " channels, " +
              std::to_string(kRows) + " x " + std::to_string(tile.taps) + " taps, " +
              std::to_string(p.batch * p.tiles) + " strips, split " + std::to_string(p.split) +
              ", " + std::to_string(blocks_of(p)) + " blocks";
  return plan;
}

std::string refusal(const Problem& problem, const Device& device) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  const Axis &h = problem.h, &w = problem.w;
  if (!device.has_wgmma) return "treadle is for sm_90a";
  if (problem.direction != Direction::grad_weight) return "treadle is for grad_weight";
  if (problem.dtype == DType::f64) return "treadle is not for fp64";
  const bool last = channels_last(problem);
  if (problem.x_layout != problem.y_layout || (!last && problem.x_layout != Layout::nchw))
    return "treadle is for NCHW or channels last";
  const int64_t size = element_size(problem.dtype);
  if (last && (is_strict(problem) || size == 2))
    return "strict fp32 and 16 bits, treadle is for NCHW";
  for (const Axis& axis : {h, w}) {
    if (axis.stride != 1) return "a stride of " + number(axis.stride);
    if (axis.dilation != 1 && axis.kernel > 1)
      return "taps lie " + number(axis.dilation) + " apart";
    if (axis.in < 1 || axis.out < 1) return "no pixels";
  }
  // The copy engine steps, and starts, at whole 16 bytes.
  if (!last && w.in * size % 16 != 0)
    return "rows of x, " + number(w.in) + ", are no whole 16 bytes";
  if (last && (problem.out_channels % 4 != 0 || problem.group_out() % 4 != 0))
    return number(problem.group_out()) + " output channels are no whole 16 bytes";
  if (w.out * size % 4 != 0) return "rows of dY, " + number(w.out) + ", are no whole words";
  if (problem.wide_index) return "a tensor has more than 2^31 elements";
  // Places beside the tensors, and copies, are counted in 32 bits.
  const int64_t reach = 4096;
  if (std::abs(h.near_pad) + std::abs(w.near_pad) + h.kernel + w.kernel > reach)
    return "taps lie too far apart";
  if (problem.batch * ceil_div(w.in, kStripBytes / size) * ceil_div(h.out, 2) > INT32_MAX / 2)
    return "x has too many rows";
  return sums_too_short(problem, kLeastWgmmaTerms);
}

}  // namespace

int64_t blocks_of(const Params& params) { return combinations(params) * params.split; }

std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason) {
  return all_plans(problem, device, reason, refusal, on_reference(candidates),
                   at_hand(device, plan_of));
}

Decision plan(const Problem& problem, const Device& device) {
  return best_plan(problem, device, refusal, on_reference(candidates), at_hand(device, plan_of));
}

Params params_of(const Problem& problem, const Plan& plan, const Args& args) {
  Params p;
  shape(problem, {plan.row, plan.split}, p);
  set_weight_tensors(args, p);
  // Of dense tensors: that of an axis of one element may be anything.
  const auto dense = [&](int32_t channels, int32_t h, int32_t w, int32_t (&stride)[4]) {
    const bool last = channels_last(problem);
    const int32_t of_tensor[] = {channels * h * w, last ? 1 : h * w, last ? w * channels : w,
                                 last ? channels : 1};
    std::copy(std::begin(of_tensor), std::end(of_tensor), stride);
  };
  dense(p.groups * p.rows, p.x_h, p.x_w, p.x_stride);
  dense(p.groups * p.columns, p.y_h, p.y_w, p.y_stride);
  const auto steps = weight_steps(args, p);
  std::copy(steps.begin(), steps.end(), p.stride);
  return p;
}

CUtensorMap map_of(const Problem& problem, const Params& p) {
  const auto size = static_cast<int>(element_size(problem.dtype));
  TensorBox box;
  box.element_bytes = size;
  box.axes = 4;
  const auto axis = [&](int i, int64_t extent, int64_t stride, int32_t count) {
    box.extent[i] = extent, box.stride[i] = stride * size, box.count[i] = count, box.step[i] = 1;
  };
  if (channels_last(problem)) {
    box.base = p.y;
    axis(0, int64_t{p.groups} * p.columns, 1, kChannels);
    axis(1, p.y_w, p.y_stride[3], kPixels);
    axis(2, p.y_h, p.y_stride[2], 2);
    axis(3, p.batch, p.y_stride[0], 1);
  } else {
    box.base = p.x;
    axis(0, p.x_w, 1, kStripBytes / 2 / size);
    axis(1, int64_t{p.groups} * p.rows, p.x_stride[1], kChannels);
    axis(2, p.x_h, p.x_stride[2], 2);
    axis(3, p.batch, p.x_stride[0], 1);
  }
  return encode(box);
}

}  // namespace convt2d::cuda::treadle
