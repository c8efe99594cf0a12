#include "cuda/narrow/narrow_plan.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/phases.h"
#include "cuda/gather_params.h"
#include "cuda/narrow/narrow_ribbon.h"
#include "cuda/strict_sums.h"

namespace convt2d::cuda::narrow {

int columns_of(const Problem& problem) {
  return static_cast<int>(problem.h.stride * problem.out_channels * problem.w.kernel);
}
int64_t reach_of(const Axis& axis) { return (axis.kernel - 1) * axis.dilation / axis.stride; }
int64_t end_of(const Axis& axis) { return (axis.near_pad + axis.out - 1) / axis.stride + 1; }

namespace {

constexpr double kClock = 1700;  // cycles a microsecond

// What things cost, in cycles where nothing else is said: launch and memory are slide's constants or between those and fold's,
// the others are counted by hand, and kBusy is what was measured of that (13 cells within 0.86 to 1.15 of the prediction).
constexpr double kLaunch = 9.5;  // us
constexpr double kWide = 4.5;    // more, with more than 16 columns: by 22 times (2026-11-23)
constexpr double kWeight = 0.5;  // of a resident weight, at the start of a block
constexpr double kStart = 1500;  // of an item: until the first row is there
constexpr double kRow = 900;  // of a row of a warpgroup, beside what follows: barriers, and waiting
constexpr double kSlice = 16;         // pixels of an operand and slice, from shared memory
constexpr double kFetch = 8;          // more, if threads fetch them
constexpr double kSplit = 18;         // strict fp32: numbers of a slice become two
constexpr double kTask = 70;          // of a warp's positions that are collected
constexpr double kProduct = 8;        // of a product there
constexpr double kL2Bytes = 30;       // a cycle
constexpr double kMemoryRate = 0.75;  // of the copy rate
constexpr double kBeside = 0.25;      // of the lesser of work and bytes
constexpr double kBusy = 2.0;

constexpr int kMostColumns = 4;  // output channels

struct Choice {
  int row;  // of kTiles
  int run, item_rows, stages, walkers;
};

void set_taps(Params& p) {
  for (int kh = p.kernel_h - 1; kh >= 0; --kh) {
    const int8_t shift = static_cast<int8_t>(kh * p.dilation_h / p.stride_h);
    if (p.shifts == 0 || p.shift[p.shifts - 1] != shift) p.shift[p.shifts++] = shift;
  }
  int8_t taps = 0;
  for (int e = 0; e < p.stride_w; ++e) {
    p.first_column[e] = taps;
    for (int kw = 0; kw < p.kernel_w; ++kw)
      if (kw * p.dilation_w % p.stride_w == e)
        p.column[taps++] = (kw * p.pitch - kw * p.dilation_w / p.stride_w) * 4;
    p.first_column[e + 1] = taps;
  }
}

// Everything that follows from the problem and the choice, pointers aside. The refusal has seen to limits.
void shape(const Problem& problem, const Choice& choice, Params& p) {
  const Tile tile = kTiles[choice.row];
  const Axis &h = problem.h, &w = problem.w;
  p = {};
  set_extents(problem, p);
  p.x_h = static_cast<int32_t>(h.in);
  p.x_w = static_cast<int32_t>(w.in);
  set_geometry(problem, p);
  p.dilation_w = static_cast<int32_t>(w.dilation);
  p.number_bytes = static_cast<int32_t>(element_size(problem.dtype));
  p.slices = static_cast<int32_t>(ceil_div(p.reduce, slice_channels(p.number_bytes)));
  p.reduce_padded = p.slices * slice_channels(p.number_bytes);
  p.reach = static_cast<int32_t>(reach_of(h));
  p.channels_last = problem.x_layout == Layout::nhwc;
  p.x_channel = p.channels_last ? 1 : p.x_h * p.x_w;
  p.x_pixel = p.channels_last ? p.reduce : 1;
  p.y_channel = p.channels_last ? 1 : p.y_h * p.y_w;
  p.y_pixel = p.channels_last ? p.columns : 1;

  p.run = choice.run;
  p.images = tile_pixels(p.number_bytes) / p.run;
  p.end_position = static_cast<int32_t>(end_of(w));
  const int32_t reach_w = static_cast<int32_t>(reach_of(w));
  p.margin = std::max(reach_w, p.end_position - p.x_w);
  p.pitch = static_cast<int32_t>(round_up(p.images * (p.run + p.margin) + p.margin, 32)) + 4;
  set_taps(p);
  // Copies of pixels start at multiples of 16 bytes.
  const int32_t vector = p.channels_last ? 1 : 16 / p.number_bytes;
  p.step = (p.run - reach_w) / vector * vector;
  // Behind the last pixel there are zeros.
  const int32_t pixels = std::min(p.x_w, p.end_position);
  p.sweeps = static_cast<int32_t>(ceil_div(std::max(pixels - p.run, 0), p.step)) + 1;
  const int32_t last = (p.sweeps - 1) * p.step;
  p.positions =
      p.sweeps == 1 ? p.end_position : std::max(p.run, p.end_position - last - (p.run - p.step));
  p.by_positions = FastDivide(p.positions);
  p.by_images = FastDivide(p.images);
  p.by_columns = FastDivide(p.columns);

  p.first_row = p.pad_h / p.stride_h;
  p.end_row = static_cast<int32_t>(end_of(h));
  p.item_rows = choice.item_rows;
  p.row_items = static_cast<int32_t>(ceil_div(p.end_row - p.first_row, p.item_rows));
  p.by_sweeps = FastDivide(p.sweeps);
  p.by_row_items = FastDivide(p.row_items);
  p.items = static_cast<int32_t>(ceil_div(p.batch, p.images)) * p.row_items * p.sweeps;
  p.walkers = std::min(choice.walkers, p.items);

  p.stages = choice.stages;
  const int32_t pixels_wide = p.run * p.number_bytes, channels_wide = p.slices * kSliceBytes;
  p.line =
      p.channels_last ? (channels_wide > 64 ? 128 : channels_wide) : std::min(pixels_wide, 128);
  p.box_bytes =
      p.channels_last ? tile_pixels(p.number_bytes) * p.line : p.images * p.line * p.reduce_padded;
  p.stage_bytes = p.box_bytes * static_cast<int32_t>(ceil_div(
                                    p.channels_last ? channels_wide : pixels_wide, p.line));
  p.weights_bytes = p.shifts * p.slices * slice_weights(tile);
  p.products_bytes = tile.width * p.pitch * 4;
  SharedPlaces places{kHeader};
  p.weights_at = places.take(int64_t{p.weights_bytes} * (tile.strict ? 2 : 1), 128);
  p.stages_at = places.take(int64_t{p.stages} * p.stage_bytes, 1024);
  p.products_at = places.take(int64_t{kGroups} * p.products_bytes, 16);
  p.shared_bytes = static_cast<int32_t>(places.end);
}

double predict(const Problem& problem, const Device& device, const Params& p, Tile tile) {
  const double tensor_core = tile.width / 2.0 * (tile.strict ? 3 : 1);
  const double fetch = kSlice + tile.width / 4.0 +
                       (p.number_bytes == 4 && !p.channels_last ? kFetch : 0) +
                       (tile.strict ? kSplit : 0);
  const double multiply =
      double(p.shifts) * p.slices * operands(p.number_bytes) * std::max(tensor_core, fetch);
  const double tasks = std::ceil(double(p.stride_h) * p.columns * p.images * p.positions / 128);
  const double collect = tasks * (kTask * p.stride_w + kProduct * p.kernel_w);
  // The tensor core and shared memory serve all warpgroups; one multiplies, then collects.
  const double bring = p.stage_bytes / kL2Bytes;
  const double row = std::max({multiply, (kRow + multiply + collect) / kGroups, bring});
  const double item = kStart + p.item_rows * row + p.reach * bring;
  const double weights = kWeight * p.shifts * p.reduce_padded * tile.width / (kThreads / 32.0);
  const double busy_us = kBusy * (weights + std::ceil(double(p.items) / p.walkers) * item) / kClock;
  const double memory_us = tensor_bytes(problem) / (kMemoryRate * device.copy_bytes_per_us);
  const double launch_us = kLaunch + (tile.width > 16 ? kWide : 0);
  return launch_us + std::max(busy_us, memory_us) + kBeside * std::min(busy_us, memory_us);
}

std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason) {
  std::vector<Candidate<Choice>> found;
  int row = is_strict(problem) ? kFirstStrict : 0;
  while (kTiles[row].width < columns_of(problem)) ++row;
  const int64_t rows = end_of(problem.h) - problem.h.near_pad / problem.h.stride;
  const int least = static_cast<int>(reach_of(problem.h)) + 2;
  for (int run = tile_pixels(element_size(problem.dtype)); run >= kLeastRun; run /= 2) {
    if (run / 2 < reach_of(problem.w)) continue;  // more than half of it would be multiplied again
    std::vector<int> heights;
    for (const int pieces : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48})
      add_once(heights, ceil_div(rows, pieces));
    for (const int item_rows : heights) {
      Choice choice = {row, run, item_rows, least, device.sm_count};
      Params p;
      shape(problem, choice, p);
      if (p.shared_bytes > device.smem_optin || least > kMostStages) {
        reason = std::to_string(least) + " rows of x need " + std::to_string(p.shared_bytes) +
                 " bytes of shared memory";
        continue;
      }
      choice.stages =
          std::min(kMostStages, least + (device.smem_optin - p.shared_bytes) / p.stage_bytes);
      shape(problem, choice, p);
      found.push_back({choice, predict(problem, device, p, kTiles[row])});
    }
  }
  return found;
}

Plan plan_of(const Problem& problem, const Candidate<Choice>& candidate) {
  const Choice& c = candidate.choice;
  Params p;
  shape(problem, c, p);
  Plan plan;
  plan.row = c.row;
  plan.predicted_us = candidate.predicted_us;
  const int detail[] = {c.run, c.item_rows, c.stages, c.walkers};
  std::copy(std::begin(detail), std::end(detail), plan.detail);
  plan.note = std::to_string(kTiles[c.row].width) + " columns, " + std::to_string(p.images) +
              " images x " + std::to_string(p.run) + " pixels, " + std::to_string(p.item_rows) +
              " rows, " + std::to_string(p.stages) + " stages, " + std::to_string(p.walkers) +
              " blocks";
  return plan;
}

Choice choice_of(const Plan& plan) {
  const int32_t* d = plan.detail;
  return {plan.row, d[0], d[1], d[2], d[3]};
}

std::string refusal(const Problem& problem, const Device& device) {
  const std::string common = common_refusal(problem, device);
  if (!common.empty()) return common;
  const auto number = [](int64_t value) { return std::to_string(value); };
  const int most = std::max_element(std::begin(kTiles), std::end(kTiles), [](auto& a, auto& b) {
                     return a.width < b.width;
                   })->width;
  if (columns_of(problem) > most)
    return number(columns_of(problem)) + " products of a pixel are more than " + number(most);
  if (reach_of(problem.h) + 2 > kMostStages)
    return "a kernel reaches over " + number(reach_of(problem.h)) + " x " +
           number(reach_of(problem.w)) + " pixels";
  if (problem.in_channels > kMostSpan)
    return number(problem.in_channels) + " channels are more than a copy brings, " +
           number(kMostSpan);
  return {};
}

}  // namespace

std::string common_refusal(const Problem& problem, const Device& device) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  const Axis &h = problem.h, &w = problem.w;
  if (!device.has_wgmma) return "no wgmma (sm_90a)";
  if (problem.direction != Direction::fwd) return "narrow is for forward";
  if (problem.dtype == DType::f64) return "narrow is for fp16, bf16 and fp32";
  const bool channels_last = problem.x_layout == Layout::nhwc;
  if (problem.x_layout == Layout::strided || problem.y_layout != problem.x_layout)
    return "narrow is for NCHW and NHWC";
  if (channels_last && is_strict(problem)) return "narrow takes no strict fp32 in NHWC";
  if (problem.groups > 1) return "narrow takes one group, not " + number(problem.groups);
  if (problem.out_channels > kMostColumns)
    return number(problem.out_channels) + " output channels are more than " + number(kMostColumns);
  if (h.near_pad < 0 || w.near_pad < 0) return "narrow takes no negative padding";
  if (std::max(h.kernel, w.kernel) > kMostTaps || std::max(h.stride, w.stride) > kMostPhases)
    return "the kernel or its stride is more than " + number(kMostTaps) + " or " +
           number(kMostPhases);
  if (std::max(reach_of(w), end_of(w) - w.in) > kMostMargin)
    return "a kernel reaches over " + number(reach_of(h)) + " x " + number(reach_of(w)) + " pixels";
  const int64_t vector = 16 / element_size(problem.dtype);
  if (!channels_last && w.in % vector != 0)
    return "rows of " + number(w.in) + " are not whole vectors of " + number(vector);
  if (channels_last && problem.in_channels % vector != 0)
    return number(problem.in_channels) + " channels are not whole vectors of " + number(vector);
  if (problem.wide_index) return "a tensor has more than 2^31 elements";
  return sums_too_short(problem, kLeastWgmmaTerms);
}

std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason) {
  std::vector<Plan> found = all_plans(problem, device, reason, refusal, candidates, plan_of);
  std::string why;
  for (Plan& plan : ribbon_plans(problem, device, why)) found.push_back(std::move(plan));
  return found;
}

Decision plan(const Problem& problem, const Device& device) {
  Decision rows = best_plan(problem, device, refusal, candidates, plan_of);
  Decision ribbons = ribbon_plan(problem, device);
  if (!ribbons.accepted) return rows;
  return rows.accepted && rows.plan.predicted_us <= ribbons.plan.predicted_us ? rows : ribbons;
}

Params params_of(const Problem& problem, const Plan& plan, const Args& args) {
  Params p;
  shape(problem, choice_of(plan), p);
  set_tensors(problem, args, p);
  return p;
}

CUtensorMap map_of(const Params& p, Tile tile) {
  return map_of_lines(p, p.reduce_padded, !tile.strict);
}

}  // namespace convt2d::cuda::narrow
