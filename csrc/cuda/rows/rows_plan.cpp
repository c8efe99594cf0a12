#include "cuda/rows/rows_plan.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>

#include "core/phases.h"
#include "cuda/gather_params.h"
#include "cuda/rows/rows.h"
#include "cuda/strict_sums.h"

namespace convt2d::cuda {
namespace rows {
namespace {

// Products of a sum in strict fp32, one after the other: with 108 the error was more than twice torch's (tests/test_numeric.py).
constexpr int64_t kMostPlainTerms = 64;

constexpr double kLaunch =
    14;  // us; what comes before the first row is stored, and behind the last
constexpr double kClock = 1700;  // cycles a microsecond

// Instructions of a warp, waiting included; from the code. With these the best plans of kernelbench_1_75 and 1_81 come out
// within 12 % of the H200's times (2026-11-23); long sums were not measured and are on the safe side.
struct Cost {
  double step;
  double item;  // positions of a warp and a phase, beside steps
  double used;  // of the instructions that a multiprocessor could start
};
constexpr Cost kTensorCost = {20, 140, 0.7}, kPlainCost = {146, 180, 0.7};
constexpr double kRow = 1200;     // of a block's row of y, meeting of its warps included
constexpr double kMeeting = 200;  // another one
constexpr double kPiece = 6;      // 16 bytes of each lane, to memory
constexpr double kUnits = 30;     // of pixels, one a lane
constexpr double kAlone = 0.6;    // how fast a block is that has its multiprocessor to itself
// Of the copy rate: sectors in which a row ends are written in two pieces, which costs more than they are (a kernel that
// only stores such rows took 1.4 times the floor, one of whole sectors 1.0).
constexpr double kMemoryRate = 0.72;
constexpr double kBeside = 0.15;  // of the lesser of work and bytes

struct Choice {
  int tile_rows, tile_width, buffers;
};

int chunk_of(const Problem& problem) { return is_strict(problem) ? kPlainChunk : kChunk; }
int64_t positions(const Axis& axis) { return ceil_div(axis.out, axis.stride); }

// Returns why it cannot be done, or an empty string.
std::string set_axis(const Axis& axis, AxisTaps& taps) {
  if (axis.kernel > kMostTaps) return "kernels of more than " + std::to_string(kMostTaps);
  if (axis.stride > kMostPhases) return "strides of more than " + std::to_string(kMostPhases);
  taps = {static_cast<int32_t>(axis.in),       static_cast<int32_t>(axis.out),
          static_cast<int32_t>(axis.kernel),   static_cast<int32_t>(axis.stride),
          static_cast<int32_t>(axis.near_pad), static_cast<int32_t>(axis.dilation)};
  taps.phases = static_cast<int32_t>(std::min(axis.stride, axis.out));
  int64_t offset[kMostTaps], first = INT64_MAX, last = INT64_MIN;
  for (int tap = 0; tap < axis.kernel; ++tap) {
    const int64_t reach = tap * axis.dilation - axis.near_pad;  // of pixel 0
    offset[tap] = -floor_div(reach, axis.stride);
    const int64_t phase = reach + offset[tap] * axis.stride;
    const bool used = phase < taps.phases;
    taps.phase[tap] = static_cast<int8_t>(used ? phase : -1);
    if (!used) continue;
    taps.rank[tap] = taps.taps[phase]++;
    first = std::min(first, offset[tap]);
    last = std::max(last, offset[tap]);
  }
  if (first > last) first = last = 0;
  if (last - first > INT16_MAX) return "taps lie too far apart";
  taps.first_offset = static_cast<int32_t>(first);
  taps.reach = static_cast<int32_t>(last - first);
  for (int tap = 0; tap < axis.kernel; ++tap)
    if (taps.phase[tap] >= 0) taps.offset[tap] = static_cast<int16_t>(offset[tap] - first);
  return {};
}

// Everything that follows from the problem and the choice, pointers aside. Returns why it cannot be done, or an empty
// string.
std::string shape(const Problem& problem, const Choice& choice, Params& p) {
  p = {};
  set_extents(problem, p);
  std::string reason = set_axis(problem.h, p.h);
  if (reason.empty()) reason = set_axis(problem.w, p.w);
  if (!reason.empty()) return reason;
  if (p.h.phases * p.w.phases > kMostPairs)
    return std::to_string(p.h.phases * p.w.phases) + " phases, more than " +
           std::to_string(kMostPairs);
  const int64_t vector = kUnit / element_size(problem.dtype);
  p.units = static_cast<int32_t>(ceil_div(p.reduce, vector));
  int64_t steps = 0;
  for (int h = 0; h < p.h.phases; ++h)
    for (int w = 0; w < p.w.phases; ++w) {
      const int64_t taps = int64_t{p.h.taps[h]} * p.w.taps[w], here = taps * p.units;
      if (is_strict(problem) && taps * p.reduce > kMostPlainTerms)
        return "strict fp32 sums of " + std::to_string(taps * p.reduce) + " products, more than " +
               std::to_string(kMostPlainTerms) + ", want more than one running sum";
      steps += is_strict(problem) ? here : round_up(here, 2);
      if (steps > INT16_MAX) return "too many products in a sum";
      p.first_step[h * p.w.phases + w + 1] = static_cast<int16_t>(steps);
    }
  p.column_tiles = static_cast<int32_t>(ceil_div(p.columns, kChannels));
  p.tile_rows = choice.tile_rows;
  p.tile_width = choice.tile_width;
  p.buffers = choice.buffers;
  p.tiles_h = static_cast<int32_t>(ceil_div(positions(problem.h), p.tile_rows));
  p.tiles_w = static_cast<int32_t>(ceil_div(positions(problem.w), p.tile_width));
  p.patch_rows = p.tile_rows + p.h.reach;
  p.patch_width = p.tile_width + p.w.reach;
  p.divide_units = FastDivide(p.units);
  // Rows of outputs that begin anywhere within 16 bytes; with an odd stride, what lanes store at once is in 32 banks.
  p.staging_pitch = static_cast<int32_t>(
      round_up((p.tile_width * problem.w.stride + vector) * element_size(problem.dtype), 128) + 48);
  SharedPlaces places{0};
  p.weights_at = places.take(steps * kChannels * kUnit, kUnit);
  p.patch_at = places.take(int64_t{p.patch_rows} * p.units * p.patch_width * kUnit, kUnit);
  p.staging_at = places.take(int64_t{p.buffers} * kChannels * p.staging_pitch, kUnit);
  p.steps_at = places.take(steps * 4, 4);
  p.bias_at = places.take(kChannels * 4, 4);
  p.shared_bytes = static_cast<int32_t>(places.end);
  return {};
}

double predict(const Problem& problem, const Device& device, const Params& p) {
  const Cost cost = is_strict(problem) ? kPlainCost : kTensorCost;
  const double steps = p.first_step[p.h.phases * p.w.phases];
  const double full_rows = p.h.phases - std::count(p.h.taps, p.h.taps + p.h.phases, 0);
  const double items = double(p.tile_width / chunk_of(problem)) * p.tile_rows;
  const double pieces =
      double(p.tile_width) * p.w.stride * double(element_size(problem.dtype)) / kUnit;
  const double instructions =
      items * (steps * cost.step + full_rows * p.w.phases * cost.item) +
      double(p.tile_rows) * p.h.phases * (kRow + kChannels * pieces / 32 * kPiece) +
      (p.buffers == 1 ? p.tile_rows * full_rows * kMeeting : 0) +
      double(p.patch_rows) * p.units * p.patch_width / 32 * kUnits + steps * 20 + 4 * kRow;
  const double resident =
      std::min<double>(kBlocks, std::max(1, device.smem_per_sm / (p.shared_bytes + 1024)));
  const double cycles = instructions / (4 * cost.used * (resident < 2 ? kAlone : 1));
  // A last round of few blocks takes as long as a block beside another.
  const double blocks = double(blocks_of(p)) / device.sm_count;
  const double turns = std::max(blocks, std::ceil(blocks / resident) * resident - resident / 2);
  const double busy_us = turns * cycles / kClock;
  const double memory_us = tensor_bytes(problem) / (kMemoryRate * device.copy_bytes_per_us);
  return kLaunch + std::max(busy_us, memory_us) + kBeside * std::min(busy_us, memory_us);
}

std::string refuse(const Problem& problem, const Device& device) {
  if (problem.direction != Direction::fwd) return "forward only";
  if (problem.dtype == DType::f64) return "no double precision";
  if (problem.x_layout != Layout::nchw || problem.y_layout != Layout::nchw)
    return "x and y are not both contiguous NCHW";
  if (!device.has_wgmma) return "was measured on sm_90a alone";
  if (problem.wide_index) return "offsets need 64 bits";
  Params params;
  return shape(problem, {1, chunk_of(problem), 1}, params);
}

std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason) {
  std::vector<Candidate<Choice>> found;
  const int64_t most_rows = positions(problem.h), most_width = positions(problem.w);
  std::vector<int> widths;
  for (int64_t tiles = 1; tiles <= most_width; tiles *= 2)
    add_once(widths, round_up(ceil_div(most_width, tiles), chunk_of(problem)));
  for (const int width : widths)
    for (const int rows : {1, 2, 4, 8})
      for (const int buffers : {1, 2}) {
        if (rows > 1 && rows / 2 >= most_rows) continue;
        Params params;
        shape(problem, {rows, width, buffers}, params);
        if (params.shared_bytes > device.smem_optin) {
          reason = "operands of " + std::to_string(params.shared_bytes) + " bytes do not fit";
          continue;
        }
        if (blocks_of(params) > INT32_MAX) continue;
        found.push_back({{rows, width, buffers}, predict(problem, device, params)});
      }
  return found;
}

Plan plan_of(const Problem& problem, const Candidate<Choice>& candidate) {
  Params params;
  shape(problem, candidate.choice, params);
  Plan plan;
  plan.row = candidate.choice.tile_rows;
  plan.split = 1;
  plan.detail[0] = candidate.choice.tile_width;
  plan.detail[1] = candidate.choice.buffers;
  plan.predicted_us = candidate.predicted_us;
  char note[96];
  std::snprintf(note, sizeof note, "%d x %d positions, %d buffers, %d bytes, %lld blocks", plan.row,
                plan.detail[0], plan.detail[1], params.shared_bytes,
                static_cast<long long>(blocks_of(params)));
  plan.note = note;
  return plan;
}

void launch(const Problem& problem, const Plan& plan, const Args& args) {
  launch_kernel(problem, params_of(problem, plan, args), args.stream);
}

}  // namespace

std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason) {
  return all_plans(problem, device, reason, refuse, candidates, plan_of);
}

Decision plan(const Problem& problem, const Device& device) {
  return best_plan(problem, device, refuse, candidates, plan_of);
}

Params params_of(const Problem& problem, const Plan& plan, const Args& args) {
  Params params;
  shape(problem, {plan.row, plan.detail[0], plan.detail[1]}, params);
  params.source = args.x.data;
  params.destination = args.y.data;
  params.weight = args.w.data;
  params.bias = problem.has_bias ? args.bias : nullptr;
  std::copy(std::begin(args.w.stride), std::end(args.w.stride), params.weight_stride);
  return params;
}

int64_t blocks_of(const Params& p) {
  return int64_t{p.batch} * p.groups * p.tiles_h * p.tiles_w * p.column_tiles;
}

}  // namespace rows

const Family rows_family = {"rows", rows::plan, rows::launch};

}  // namespace convt2d::cuda
