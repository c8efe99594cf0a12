// Which ribbons fit a problem, their predicted times, and what a kernel is told of one.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/phases.h"
#include "cuda/gather_params.h"
#include "cuda/narrow/narrow_plan.h"
#include "cuda/narrow/narrow_ribbon.h"
#include "cuda/strict_sums.h"

namespace convt2d::cuda::narrow {
namespace {

constexpr double kClock = 1700;  // cycles a microsecond

// What things cost, in cycles where nothing else is said: counted by hand, then fitted to 640 plans of four layers, four modes
// (strict fp32; H200, 2026-11-24), 800 plans of six layers (the others; H100, 2026-11-25), and, for what is collected at once
// and weights that come as they lie, 144 plans of four layers (H200, 2026-11-27): within 8 %, and the choice is the best or
// within 7 %. What a fit finds says little about one thing alone.
struct Costs {
  double launch;         // us: an empty kernel, the tail
  double start;          // of a block: barriers, the first chunk, beside what follows
  double slice_weights;  // of a slice of weights that a warp brings
  double chunk, row;     // of a row's chunk; of a row: barriers
  double column;         // of a column of a row: sums that move up, and go to shared memory
  double two_lines;      // of two lines of outputs that a warp collects
  double at_once;        // of a unit's lines that it collects at once; for each of their products
  double product;
  double above;        // of a row above, which collects nothing
  double memory_rate;  // of the copy rate
  double beside;       // of the lesser of work and bytes
};
constexpr Costs kStrictCosts = {6.5, 2500, 700, 150, 300, 0, 260, 150, 10, 0.7, 0.72, 0.25},
                kCosts = {7, 1130, 400, 20, 20, 5.9, 840, 196, 13.6, 0.42, 0.88, 0.32};
constexpr double kWgmma = 1.5;  // times what an instruction takes
constexpr double kMma = 2.8;    // of a multiprocessor, 16 pixels x 8 columns x 32 bytes of channels
constexpr double kWait = 9.8;   // of a warp alone, each of them
constexpr double kLineIssue = 50;    // of a line of a warp, instructions
constexpr double kAtOnceIssue = 25;  // the same, where all lines of a unit are collected at once
constexpr double kAnyLine = 220;     // of a line that is not of twos, for each output
constexpr double kL2Bytes = 30;      // a cycle and multiprocessor
constexpr double kAgain = 0.15;      // of a byte that is brought again, from L2
constexpr double kFlight = 1.1;      // us that what is asked for is on its way

struct Choice {
  int ribbon, run, stages, walkers;
};

bool fits(const Problem& problem, Ribbon ribbon) {
  return columns_of(problem) <= ribbon.width && reach_of(problem.h) < ribbon.span &&
         is_strict(problem) == ribbon.strict;
}

// Taps by output of a unit.
void set_outputs(RibbonParams& p, int span) {
  int8_t taps = 0;
  int most = 0;
  for (int i = 0; i < p.stride_w; ++i) {
    const int e = i + p.pad_w;
    p.first_tap[i] = taps;
    for (int kw = 0; kw < p.kernel_w; ++kw)
      if ((e - kw * p.dilation_w) % p.stride_w == 0)
        p.tap[taps++] = (kw * kRibbonPitch + e / p.stride_w - (kw * p.dilation_w) / p.stride_w) * 4;
    p.first_tap[i + 1] = taps;
    most = std::max(most, taps - p.first_tap[i]);
  }
  p.twos = p.stride_w == 2 && most <= span;
  p.pairs = p.twos && p.y_pixel == 1 && p.y_w % 2 == 0;
  p.wide = p.twos && p.y_pixel > 1 && (p.y_w * p.columns * p.number_bytes) % 4 == 0;
  for (int i = 0; p.twos && i < 2; ++i)
    for (int j = 0; j < span; ++j) {
      const int count = p.first_tap[i + 1] - p.first_tap[i];
      const int tap = count ? p.first_tap[i] + std::min(j, count - 1) : 0;
      p.two[i][j] = p.tap[tap];
      p.two_there[i][j] = j < count ? 1.f : 0.f;
    }
}

// Whether weights are a run of memory, in any order.
bool without_gaps(const RibbonParams& p) {
  const int64_t size[] = {p.reduce, p.columns, p.kernel_h, p.kernel_w},
                stride[] = {p.weight_reduce, p.weight_column, p.weight_h, p.weight_w};
  int64_t last = 0, count = 1;
  for (int i = 0; i < 4; ++i) {
    if (size[i] > 1 && stride[i] <= 0) return false;
    last += (size[i] - 1) * stride[i];
    count *= size[i];
  }
  return last + 1 == count;
}

// Everything that follows from the problem and the choice, pointers aside. The refusal has seen to limits.
void shape(const Problem& problem, const Choice& choice, RibbonParams& p) {
  const Ribbon ribbon = kRibbons[choice.ribbon];
  const Axis &h = problem.h, &w = problem.w;
  p = {};
  set_extents(problem, p);
  p.x_h = static_cast<int32_t>(h.in);
  p.x_w = static_cast<int32_t>(w.in);
  set_geometry(problem, p);
  p.dilation_w = static_cast<int32_t>(w.dilation);
  p.number_bytes = static_cast<int32_t>(element_size(problem.dtype));
  const int channels = slice_channels(p.number_bytes);
  p.slices = static_cast<int32_t>(ceil_div(p.reduce, channels));
  p.chunk_slices = std::min(p.slices, kChunkSlices);
  if (p.chunk_slices == 3) p.chunk_slices = 4;  // 96 bytes are no line
  p.chunks = static_cast<int32_t>(ceil_div(p.slices, p.chunk_slices));
  p.reach = static_cast<int32_t>(reach_of(h));
  p.channels_last = problem.x_layout == Layout::nhwc;
  p.strict = ribbon.strict;
  p.x_channel = p.channels_last ? 1 : p.x_h * p.x_w;
  p.x_pixel = p.channels_last ? p.reduce : 1;
  p.y_channel = p.channels_last ? 1 : p.y_h * p.y_w;
  p.y_pixel = p.channels_last ? p.columns : 1;

  p.run = choice.run;
  p.images = kRibbonPixels / p.run;
  // Of a unit: from its number to the positions of its first output and its last.
  const int32_t reach_w = static_cast<int32_t>(reach_of(w)), near = p.pad_w / p.stride_w,
                far = (p.pad_w + p.stride_w - 1) / p.stride_w;
  p.units = static_cast<int32_t>(ceil_div(p.y_w, p.stride_w));
  const int32_t last_position = p.units - 1 + far;
  const int32_t vector = p.channels_last ? 1 : 16 / p.number_bytes;
  p.step = (p.run - reach_w - (far - near)) / vector * vector;
  p.lead = reach_w - near;
  const int32_t pixels = std::min(p.x_w, last_position + 1);
  p.sweeps = pixels <= p.run ? 1 : static_cast<int32_t>(ceil_div(pixels - p.run, p.step)) + 1;
  p.margin = static_cast<int32_t>(
      round_up(std::max({reach_w, last_position - (p.sweeps - 1) * p.step - (p.run - 1), 1}), 4));
  set_outputs(p, ribbon.span);
  // Two rows of y, of one channel or of as many as there is room for.
  const int32_t lines = p.stride_h * p.columns;
  if (p.twos && p.stride_h == 2 && (lines == 2 || lines == most_lines(ribbon)) &&
      p.kernel_w <= line_columns(ribbon) &&
      (p.pairs || (p.y_pixel > 1 && p.y_w * p.columns % 2 == 0)))
    p.lines_at_once = lines;
  p.line_columns = p.lines_at_once > 0 ? line_columns(ribbon) : p.kernel_w;
  p.positions = 1;
  for (int sweep = 0; sweep < p.sweeps; ++sweep) {
    const Units units = units_of(p, sweep);
    p.positions = std::max(p.positions, units.end - units.first);
  }
  p.by_positions = FastDivide(p.positions);
  p.by_run = FastDivide(p.run);
  p.by_columns = FastDivide(p.columns);
  p.by_line = FastDivide(p.line_columns);
  p.by_dilation = FastDivide(p.dilation_h);

  p.first_row = p.pad_h / p.stride_h;
  p.rows = static_cast<int32_t>(end_of(h)) - p.first_row;
  p.by_sweeps = FastDivide(p.sweeps);
  p.by_rows = FastDivide(p.rows);
  const int64_t rows = ceil_div(p.batch, p.images) * p.rows;
  const int64_t strands = std::clamp<int64_t>(choice.walkers / p.sweeps, 1, rows);
  p.walkers = static_cast<int32_t>(strands * p.sweeps);
  p.walker_rows = static_cast<int32_t>(rows / strands);
  p.longer = static_cast<int32_t>(rows % strands);

  const int32_t chunk_bytes = p.chunk_slices * kSliceBytes;
  p.line = p.channels_last ? chunk_bytes : std::min(p.run * p.number_bytes, 128);
  p.box_bytes =
      p.channels_last ? kRibbonPixels * p.line : p.images * p.line * p.chunk_slices * channels;
  p.stages = choice.stages;
  p.stage_bytes = kRibbonPixels * chunk_bytes;
  while (p.line >> p.line_bits > p.number_bytes) ++p.line_bits;
  p.products_bytes = ribbon.width * kRibbonPitch * 4;
  p.raw_bytes = p.reduce * p.columns * p.kernel_h * p.kernel_w * p.number_bytes;
  p.turned_bytes =
      p.wide && p.lines_at_once == 0 ? 32 * 2 * p.stride_h * p.columns * p.number_bytes : 0;
  SharedPlaces places{kRibbonHeader};
  p.weights_at = places.take(int64_t{p.slices} * slice_weights(ribbon), 128);
  const int32_t buffers = product_buffers(ribbon, p.number_bytes);
  p.products_at = places.take(std::max(buffers * p.products_bytes, p.raw_bytes), 16);
  p.turned_at = places.take(int64_t{kRibbonWarps} * p.turned_bytes, 16);
  p.stages_at = places.take(int64_t{p.stages} * p.stage_bytes, 1024);
  p.shared_bytes = static_cast<int32_t>(places.end);
}

double predict(const Problem& problem, const Device& device, const Choice& choice,
               const RibbonParams& p) {
  const Ribbon ribbon = kRibbons[choice.ribbon];
  const Costs& costs = ribbon.strict ? kStrictCosts : kCosts;
  const double columns = all_columns(ribbon);
  const double products =
      ribbon.strict ? 2. * fragments(ribbon) * p.slices * 3 : 0;  // `mma.sync` of a warp and row
  const double tensor_core = ribbon.strict
                                 ? products * kMma * kRibbonWarps
                                 : kWgmma * 2 * p.slices * std::max(columns / 2, 16 + columns / 4);
  const double rounds = std::ceil(double(p.images) * p.positions / kRibbonConsumers);
  const double lines = double(p.stride_h) * p.columns;
  const double collect =
      rounds * (p.lines_at_once > 0 ? costs.at_once + lines * 2 * ribbon.span * costs.product
                : p.twos            ? std::ceil(lines / 2) * costs.two_lines
                                    : lines * p.stride_w * kAnyLine);
  const double line_issue = p.lines_at_once > 0 ? kAtOnceIssue : kLineIssue;
  const double issue = rounds * lines * (p.twos ? 1 : p.stride_w) * line_issue + products + 100;
  // The tensor core, instructions and L2 serve all blocks of a multiprocessor; one waits for all of what it does.
  const double multiply = costs.row + p.chunks * costs.chunk +
                          (ribbon.strict ? products * kWait : tensor_core) + columns * costs.column;
  const double alone =
      collects_apart(ribbon, p.number_bytes) ? std::max(multiply, collect) : multiply + collect;
  // Lines of half a length take three quarters of the time.
  const double bring = double(p.chunks) * p.stage_bytes * (0.5 + 64. / p.line);
  const double shared = std::max({tensor_core, issue, bring / kL2Bytes});
  const int together = static_cast<int>(ceil_div(p.walkers, device.sm_count));
  // Blocks whose rows are of two groups of images begin twice.
  const double begins = 1 + std::min(1., double(p.walker_rows) / p.rows),
               rows = p.walker_rows + (p.longer > 0) + begins * p.reach * costs.above;
  const double weights = std::ceil(double(p.slices) / kRibbonWarps) * costs.slice_weights;
  const double busy_us =
      (costs.start + weights + rows * std::max(alone, together * shared)) / kClock;
  const double brought =
      double(p.walkers) *
      (p.walker_rows + double(p.longer) * p.sweeps / p.walkers + begins * p.reach) * p.chunks *
      p.stage_bytes;
  const double once = double(p.batch) * p.reduce * p.x_h * p.x_w * p.number_bytes;
  const double bytes = tensor_bytes(problem) + kAgain * std::max(0., brought - once);
  const double flight_us =
      bytes / device.sm_count * kFlight / (double(together) * (p.stages - 0.5) * p.stage_bytes);
  const double memory_us =
      std::max(flight_us, bytes / (costs.memory_rate * device.copy_bytes_per_us));
  return costs.launch + std::max(busy_us, memory_us) + costs.beside * std::min(busy_us, memory_us);
}

std::string refusal(const Problem& problem, const Device& device) {
  const std::string common = common_refusal(problem, device);
  if (!common.empty()) return common;
  for (const Ribbon& ribbon : kRibbons)
    if (fits(problem, ribbon)) return sums_too_short(problem, kLeastSplitTerms);
  return std::to_string(columns_of(problem)) +
         " products of a pixel, which a kernel that reaches over " +
         std::to_string(reach_of(problem.h)) + " rows has, are no ribbon's";
}

std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason) {
  std::vector<Candidate<Choice>> found;
  for (int ribbon = 0; ribbon < kRibbonCount; ++ribbon) {
    if (!fits(problem, kRibbons[ribbon])) continue;
    for (int run = kRibbonPixels; run >= kLeastRun; run /= 2) {
      if (run / 2 < reach_of(problem.w) + 1) continue;
      for (int blocks = kRibbons[ribbon].blocks; blocks > 0; --blocks) {
        Choice choice = {ribbon, run, 2, device.sm_count * blocks};
        RibbonParams p;
        shape(problem, choice, p);
        // Who collects asks for chunks a row at a time.
        if (collects_apart(kRibbons[ribbon], p.number_bytes)) choice.stages = std::max(2, p.chunks);
        if (choice.stages > kMostRibbonStages) continue;
        shape(problem, choice, p);
        if (p.images * (p.run + p.margin) + p.margin > kRibbonPitch) continue;
        const int room = std::min(device.smem_optin, device.smem_per_sm / blocks - 1024);
        if (p.shared_bytes > room) {
          reason = "two stages of a ribbon need " + std::to_string(p.shared_bytes) +
                   " bytes of shared memory";
          continue;
        }
        choice.stages =
            std::min(kMostRibbonStages, choice.stages + (room - p.shared_bytes) / p.stage_bytes);
        shape(problem, choice, p);
        found.push_back({choice, predict(problem, device, choice, p)});
      }
    }
  }
  return found;
}

Plan plan_of(const Problem& problem, const Candidate<Choice>& candidate) {
  const Choice& c = candidate.choice;
  RibbonParams p;
  shape(problem, c, p);
  Plan plan;
  plan.row = kTileCount + c.ribbon;
  plan.predicted_us = candidate.predicted_us;
  const int detail[] = {c.run, c.stages, c.walkers};
  std::copy(std::begin(detail), std::end(detail), plan.detail);
  plan.note = "ribbons of " + std::to_string(kRibbons[c.ribbon].width) + " columns x " +
              std::to_string(kRibbons[c.ribbon].span) + " rows, " + std::to_string(p.images) +
              " images x " + std::to_string(p.run) + " pixels, " + std::to_string(p.walker_rows) +
              " rows, " + std::to_string(p.stages) + " stages, " + std::to_string(p.walkers) +
              " blocks of " + std::to_string(p.shared_bytes) + " bytes";
  return plan;
}

Choice choice_of(const Plan& plan) {
  const int32_t* d = plan.detail;
  return {plan.row - kTileCount, d[0], d[1], d[2]};
}

}  // namespace

std::vector<Plan> ribbon_plans(const Problem& problem, const Device& device, std::string& reason) {
  return all_plans(problem, device, reason, refusal, candidates, plan_of);
}

Decision ribbon_plan(const Problem& problem, const Device& device) {
  return best_plan(problem, device, refusal, candidates, plan_of);
}

RibbonParams ribbon_params_of(const Problem& problem, const Plan& plan, const Args& args) {
  RibbonParams p;
  shape(problem, choice_of(plan), p);
  set_tensors(problem, args, p);
  p.raw_copied = aligned(p.weight, 16) && p.raw_bytes % 16 == 0 && without_gaps(p);
  p.raw_reduce = p.raw_copied ? p.weight_reduce : p.columns * p.kernel_h * p.kernel_w;
  p.raw_column = p.raw_copied ? p.weight_column : p.kernel_h * p.kernel_w;
  p.raw_h = p.raw_copied ? p.weight_h : p.kernel_w;
  p.raw_w = p.raw_copied ? p.weight_w : 1;
  return p;
}

CUtensorMap ribbon_map_of(const RibbonParams& p) {
  return map_of_lines(p, p.chunk_slices * slice_channels(p.number_bytes), !p.strict);
}

}  // namespace convt2d::cuda::narrow
