#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "core/phases.h"
#include "cuda/gather_params.h"
#include "cuda/strand/strand_plan.h"
#include "cuda/strict_sums.h"
#include "cuda/tensor_map.h"

namespace convt2d::cuda::strand {
namespace {

// Counted; what is dated was measured.
constexpr double kClock = 1700;                  // cycles a microsecond
constexpr double kLaunch = 6.5;                  // us: launch, cold code, the way out
constexpr double kClusters = 1.5;                // us: a cluster starts, its sums are added
constexpr double kFirst = 1500;                  // cycles until the first unit is there
constexpr double kTensorTime = 1.2;              // of what the rates of Device say
constexpr double kSplit = 5;                     // instructions of a warp: 32 words split
constexpr double kPlace = 4;                     // or 32 addresses made, and fetched from
constexpr double kStepRest = 8, kUnitRest = 30;  // and what a step and a unit take beside them
constexpr double kL2Bytes = 39;                  // a cycle that reach a multiprocessor,
constexpr double kBox = 75;     // cycles of each of two boxes beside them (fcn32s, 2026-11-24),
constexpr double kBoxRow = 10;  // and of each of their rows,
constexpr double kStrictTime = 1.3;  // and of strict fp32's work over what is counted
constexpr double kL2Rate = 1.15;     // and all of them, times the copy rate
constexpr double kRest = 0.3;        // of what is less busy that is not hidden
constexpr double kMemoryRate = 0.8;  // of the copy rate

// Steps of a unit, at least, if there are as many planes: those of all teams.
constexpr int kSteps = 16;
constexpr int kFewestStages = 2, kMostStages = 16;

struct WindowChoice {
  int row, width_bits, ranks;
};

bool last(const Problem& problem) { return problem.y_layout == Layout::nhwc; }
// Bytes of a step along a row of dY, of all channels that lie there.
int64_t step_bytes(const Problem& problem) {
  return problem.w.stride * size_of(problem) * (last(problem) ? problem.out_channels : 1);
}
// The largest that kernel rows, their steps, dY's rows and what lies beside them are whole numbers of; channels last of
// steps alone, being one of each plane.
int64_t segment_of(const Problem& problem) {
  const Axis& w = problem.w;
  int64_t whole = step_bytes(problem);
  if (!last(problem))
    for (const int64_t numbers : {w.kernel, w.near_pad, w.out})
      whole = gcd(whole, std::abs(numbers) * size_of(problem));
  int64_t segment = 128;
  while (segment > 16 && whole % segment != 0) segment /= 2;
  return segment;
}
// From one segment of a plane to the next.
int64_t segment_step(const Problem& problem) {
  return last(problem) ? step_bytes(problem) : segment_of(problem);
}
int64_t planes_of(const Problem& problem) {
  return last(problem) ? step_bytes(problem) / segment_of(problem) : problem.out_channels;
}

void shape(const Problem& problem, const WindowChoice& choice, WindowParams& p) {
  const Axis &h = problem.h, &w = problem.w;
  const int positions = kWindowPositions[choice.row], width = 1 << choice.width_bits;
  const auto set = [](int32_t& to, int64_t value) {
    to = static_cast<int32_t>(std::min<int64_t>(value, INT32_MAX / 2));
  };
  p = {};
  p.width_bits = choice.width_bits;
  p.ranks = choice.ranks;
  set(p.tiles_w, ceil_div(w.in, width));
  set(p.tiles_h, ceil_div(h.in, positions / width));
  set(p.column_tiles, ceil_div(problem.in_channels, kWindowColumns));
  set(p.images, problem.batch);
  set(p.x_h, h.in);
  set(p.x_w, w.in);
  set(p.segment, segment_of(problem));
  set(p.down, ceil_div(h.kernel, h.stride));
  const int64_t hop = step_bytes(problem) / segment_step(problem);
  set(p.hop, hop);
  set(p.across, w.kernel * hop / w.stride);
  set(p.remainders, std::min(h.stride, h.kernel));
  const int64_t planes = planes_of(problem),
                plane_steps = int64_t{p.down} * p.across * p.segment / kStep;
  set(p.planes, std::min(planes, ceil_div(kSteps, plane_steps)));
  set(p.units, ceil_div(planes, p.planes) * p.remainders);
  set(p.steps, plane_steps * p.planes);
  set(p.segments, (width - 1) * hop + p.across);
  set(p.rows, positions / width + p.down - 1);
  p.skipped = static_cast<int32_t>(w.near_pad * hop / w.stride);
  p.before = static_cast<int32_t>(-floor_div(-h.near_pad, h.stride));
  p.shift = static_cast<int32_t>(p.before * h.stride - h.near_pad);
  if (last(problem))
    set(p.image_steps, h.out / h.stride);
  else
    set(p.image_planes, problem.out_channels);
  set(p.row_bytes, int64_t{p.planes} * p.segments * p.segment);
  set(p.weight_bytes, int64_t{p.planes} * p.across * kWindowColumns * p.segment);
  set(p.weights_at, round_up(int64_t{p.rows} * p.row_bytes, 128));
  set(p.asked_bytes, int64_t{p.rows} * p.row_bytes + int64_t{p.down} * p.weight_bytes);
  set(p.stage_bytes, round_up(int64_t{p.weights_at} + int64_t{p.down} * p.weight_bytes, 1024));
  p.by_remainders = FastDivide(p.remainders);
  p.by_share = FastDivide(ceil_div(positions * kWindowColumns / kTogether, p.ranks));
}

// What ranks send each other comes before the stages.
void place_window_stages(int row, WindowParams& p) {
  place_stages(kMostStages, p);
  p.received_at = static_cast<int32_t>(round_up(p.table_at + int64_t{p.steps} * 8, 16));
  p.stages_at = static_cast<int32_t>(std::min<int64_t>(
      round_up(int64_t{p.received_at} + window_received_bytes(kWindowPositions[row]), 1024),
      INT32_MAX / 2));
}

// As many stages as there is room for, and units; or none.
void set_stages(const Problem& problem, const Device& device, int row, WindowParams& p) {
  const int positions = kWindowPositions[row];
  const int64_t sums =
      int64_t{window_teams(positions, is_strict(problem))} * window_sum_bytes(positions);
  place_window_stages(row, p);
  const int64_t room = int64_t{device.smem_optin} - p.stages_at;
  p.stages = static_cast<int32_t>(
      std::min<int64_t>({room / p.stage_bytes, kMostStages,
                         std::max<int64_t>(ceil_div(p.units, p.ranks), kFewestStages)}));
  p.shared_bytes = static_cast<int32_t>(p.stages_at +
                                        std::max<int64_t>(sums, int64_t{p.stages} * p.stage_bytes));
}

double predict(const Problem& problem, const Device& device, int row, const WindowParams& p) {
  const double size = static_cast<double>(size_of(problem)), positions = kWindowPositions[row];
  const bool half = size == 2, strict = is_strict(problem);
  const double products = strict ? 3 : 1, columns = kWindowColumns;
  // Of a unit, cycles of a multiprocessor: its tensor cores,
  const double rate = (half ? device.mma_f16_per_us : device.mma_tf32_per_us) / device.sm_count /
                      kClock / kTensorTime;
  const double mma = positions * columns * (p.steps * kStep / size) * products / rate;
  // its four issuers,
  const double m = window_sixteens(kWindowPositions[row], strict), n = columns / 8;
  const double groups = positions / 16 / m, words = 4 * m + 2 * n;
  const double step =
      (m + 2) * kPlace + m * n * products + kStepRest + (strict ? words * kSplit + m * n * 2 : 0);
  const double busiest_team =
      std::ceil(p.steps / double(window_teams(kWindowPositions[row], strict)));
  const double issue = std::max(p.steps * groups, busiest_team * kWindowWarps) * step / 4 +
                       kWindowWarps * kUnitRest / 4;
  // shared memory, and what comes to it.
  const double shared = p.steps * groups * words + p.asked_bytes / 128.0;
  const double l2 = p.asked_bytes / kL2Bytes + 2 * kBox + (p.rows + p.down) * kBoxRow;
  const double busiest = std::max({mma, issue, shared, l2});
  const double cycles =
      (strict ? kStrictTime : 1) * (busiest + kRest / 3 * (mma + issue + shared + l2 - busiest));
  const double blocks = static_cast<double>(window_tiles_of(p)) * p.ranks;
  const double units = std::ceil(double(p.units) / p.ranks);
  const double rounds = rounds_of(device, window_tiles_of(p), p.ranks, 1);
  const double busy_us = rounds * (units * cycles + kFirst) / kClock;
  // Rows and channels beyond the tensors come from nowhere.
  const double there = std::min(1.0, double(problem.in_channels) / (p.column_tiles * columns));
  const double real = double(p.rows) * p.row_bytes + double(p.down) * p.weight_bytes * there;
  const double l2_us = blocks * units * real / (kL2Rate * device.copy_bytes_per_us);
  const double memory_us = tensor_bytes(problem) / (kMemoryRate * device.copy_bytes_per_us);
  return kLaunch + (p.ranks > 1 ? kClusters : 0) + std::max({busy_us, l2_us, memory_us}) +
         kRest * std::min(busy_us, std::max(l2_us, memory_us));
}

std::vector<Candidate<WindowChoice>> candidates(const Problem& problem, const Device& device,
                                                std::string& reason) {
  std::vector<Candidate<WindowChoice>> found;
  for (int row = 0; row < kWindowTileCount; ++row)
    for (int bits = 3; 1 << bits <= std::min(kWindowPositions[row], 32); ++bits) {
      WindowParams p;
      shape(problem, {row, bits, 1}, p);
      if (std::max({p.segments, p.across, p.planes, p.rows, p.down}) > kMostSpan) {
        reason = "a box of windows is too long";
        continue;
      }
      const int64_t tiles = window_tiles_of(p);
      for (const int ranks : {1, 2, 3, 4, 6, 8, 11, kMostWindowRanks}) {
        if (ranks > 1 && (ranks > p.units || tiles * ranks > 2 * int64_t{device.sm_count})) break;
        p.ranks = ranks;
        set_stages(problem, device, row, p);
        if (p.stages < kFewestStages || p.shared_bytes > device.smem_optin) {
          reason = "two units need " + std::to_string(2 * int64_t{p.stage_bytes}) +
                   " bytes of shared memory";
          continue;
        }
        found.push_back({{row, bits, ranks}, predict(problem, device, row, p)});
      }
    }
  return found;
}

Plan plan_of(const Problem& problem, const Device& device,
             const Candidate<WindowChoice>& candidate) {
  const WindowChoice& choice = candidate.choice;
  WindowParams p;
  shape(problem, choice, p);
  set_stages(problem, device, choice.row, p);
  const auto number = [](int64_t value) { return std::to_string(value); };
  const int width = 1 << choice.width_bits;
  Plan plan;
  plan.row = kTileCount + choice.row;
  plan.split = choice.ranks;
  plan.detail[0] = choice.width_bits;
  plan.detail[1] = p.stages;
  plan.detail[2] = p.shared_bytes;
  plan.predicted_us = candidate.predicted_us;
  plan.note = "windows of " + number(p.down) + " x " + number(p.across) +
              " segments, 24 channels x " + number(kWindowPositions[choice.row] / width) + "x" +
              number(width) + " positions, " + number(p.planes) + " planes by " +
              number(p.segment) + " bytes, " + number(p.stages) + " stages, " +
              number(window_tiles_of(p)) + " tiles";
  if (p.ranks > 1) plan.note += ", K split over a cluster of " + number(p.ranks);
  return plan;
}

std::string refusal(const Problem& problem, const Device& device) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  const Axis &h = problem.h, &w = problem.w;
  if (!device.has_wgmma) return "windows are for sm_90a";
  if (problem.groups != 1) return number(problem.groups) + " groups";
  if (h.dilation != 1 || w.dilation != 1) return "taps lie apart";
  if (segment_of(problem) < kStep) return "segments of " + number(segment_of(problem)) + " bytes";
  if (h.kernel % h.stride != 0 || h.out % h.stride != 0)
    return "kernels or dY have no whole steps of " + number(h.stride) + " rows";
  // Of the images of dY channels last, the rows of one follow those of the one before.
  if (last(problem) && problem.batch > 1 &&
      (h.near_pad > 0 || (h.in - 1) * h.stride - h.near_pad + h.kernel > h.out))
    return "images of dY meet where rows lie beside it";
  if (last(problem) &&
      (w.kernel % w.stride != 0 || w.near_pad % w.stride != 0 || w.out % w.stride != 0))
    return "kernel rows and dY's are no whole steps of " + number(w.stride);
  return {};
}

}  // namespace

int64_t window_tiles_of(const WindowParams& p) {
  return int64_t{p.column_tiles} * p.tiles_w * p.tiles_h * p.images;
}

std::vector<Plan> window_plans(const Problem& problem, const Device& device, std::string& reason) {
  return all_plans(problem, device, reason, refusal, candidates, described_on(device, plan_of));
}

Decision window_plan(const Problem& problem, const Device& device) {
  const auto refuse = [](const Problem& problem, const Device& device) -> std::string {
    const std::string reason = refusal(problem, device);
    if (!reason.empty()) return reason;
    WindowParams p;
    shape(problem, {0, 4, 1}, p);
    const int64_t tiles = window_tiles_of(p);
    if (tiles > int64_t{kMostTiles} * device.sm_count)
      return "dX has " + std::to_string(tiles) + " tiles of windows, more than few";
    return {};
  };
  return best_plan(problem, device, refuse, candidates, described_on(device, plan_of));
}

WindowParams window_params_of(const Problem& problem, const Plan& plan, const Args& args) {
  WindowParams p;
  shape(problem, {plan.row - kTileCount, plan.detail[0], plan.split}, p);
  place_window_stages(plan.row - kTileCount, p);
  p.stages = plan.detail[1];
  p.shared_bytes = plan.detail[2];
  Plan plain;  // any other tile: what is summed again knows no tiles
  p.base = params_of(problem, plain, args);
  return p;
}

CUtensorMap map_of_windows(const Problem& problem, const WindowParams& p) {
  const int64_t size = size_of(problem), segment = p.segment, step = segment_step(problem),
                pixel = last(problem) ? problem.out_channels : 1,
                row = problem.w.out * pixel * size, rows = problem.h.stride,
                steps = problem.h.out / rows, plane = row * problem.h.out;
  const int64_t planes = planes_of(problem), images = problem.batch;
  return encode({p.base.source,
                 static_cast<int>(size),
                 5,
                 {segment / size, row / step, last(problem) ? planes : planes * images, rows,
                  last(problem) ? steps * images : steps},
                 {size, step, last(problem) ? segment : plane, row, row * rows},
                 {static_cast<int32_t>(segment / size), p.segments, p.planes, 1, p.rows},
                 {1, 1, 1, 1, 1},
                 true,
                 !is_strict(problem)});
}

CUtensorMap map_of_window_weights(const Problem& problem, const WindowParams& p) {
  const int64_t size = size_of(problem), segment = p.segment, step = segment_step(problem),
                row = step * p.across, rows = problem.h.stride, plane = row * problem.h.kernel;
  return encode({p.base.weight,
                 static_cast<int>(size),
                 5,
                 {segment / size, problem.in_channels, rows * p.across, planes_of(problem), p.down},
                 {size, plane * (last(problem) ? 1 : problem.out_channels), step,
                  last(problem) ? segment : plane, row * rows},
                 {static_cast<int32_t>(segment / size), kWindowColumns, p.across, p.planes, p.down},
                 {1, 1, 1, 1, 1},
                 true,
                 !is_strict(problem)});
}

}  // namespace convt2d::cuda::strand
