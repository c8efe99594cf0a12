#include "cuda/hank/hank_plan.h"

#include <algorithm>
#include <cmath>

#include "core/phases.h"
#include "cuda/cuda_families.h"
#include "cuda/gather_params.h"
#include "cuda/tensor_map.h"
#include "cuda/weight_cost.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda::hank {
namespace {

// Counted; the last, by 24 times of twelve layers in fp16 and TF32 on an H200 (2026-11-30).
constexpr double kClock = 1700;             // cycles a microsecond
constexpr double kBlock = 1500;             // cycles of a block beside its steps,
constexpr double kStep = 200;               // of a step: its barriers,
constexpr double kLatency = 1500;           // until what was asked for is there,
constexpr double kBoxRow = 3.7, kBox = 60;  // of the copy engine, a line and a box,
constexpr double kChunk = 90;               // of a chunk, what a warp waits for,
constexpr double kRest = 10;                // and instructions that neither load nor multiply
constexpr double kMatrices = 4;             // cycles of shared memory, four matrices
constexpr WeightCosts kCosts = {4, 1, 0.1, 2.5, 1, 1e9, kLeftBehind};

constexpr int kMostBand = 16;  // rows of a stage
constexpr int kLeastStages = 2;
constexpr int kSwizzled = 1024;  // bytes in which the swizzle comes round

struct Choice {
  int row, phase_rows, band, stages, split;
};

int size_of(const Problem& problem) { return static_cast<int>(element_size(problem.dtype)); }
int32_t narrow(int64_t value) { return static_cast<int32_t>(value); }

int64_t combinations(const Params& p) { return int64_t{p.line_blocks} * p.phase_blocks; }

// Phases that have a tap, and rows or columns of x that one of them meets.
int64_t phases_of(const Axis& axis) { return std::min(axis.kernel, axis.stride); }
int64_t window_of(const Axis& axis) { return ceil_div(axis.kernel, axis.stride); }
// Pixels that a phase has of a row of dY, as far as x meets them; or rows.
int64_t reached(const Axis& axis) { return axis.in + window_of(axis) - 1; }
// Rows or columns of dY that come, if there are as many.
int64_t read(const Axis& axis) { return std::min(axis.out, phases_of(axis) * reached(axis)); }
// How many of them a box may have, and one more of x.
int64_t most_in_box(const Axis& axis) { return (kMostSpan - kWindow) / axis.stride + 1; }

Params shape(const Problem& problem, const Choice& choice) {
  const Axis &h = problem.h, &w = problem.w;
  const int bytes = size_of(problem);
  Params p{};
  set_weight_extents(problem, p);
  p.y_h = narrow(h.out), p.y_w = narrow(w.out);
  p.stride_h = narrow(h.stride), p.stride_w = narrow(w.stride);
  p.pad_h = narrow(h.near_pad), p.pad_w = narrow(w.near_pad);
  p.kernel_h = narrow(h.kernel), p.kernel_w = narrow(w.kernel);
  p.window_h = narrow(window_of(h)), p.window_w = narrow(window_of(w));
  p.phase_rows = choice.phase_rows, p.phase_columns = narrow(phases_of(w));
  p.phase_blocks = narrow(ceil_div(phases_of(h), p.phase_rows));
  p.line_blocks = narrow(ceil_div(problem.groups, line_channels(bytes)));

  p.strips = narrow(ceil_div(reached(w), most_in_box(w)));
  p.pixels = narrow(ceil_div(reached(w), p.strips));
  p.x_pixels = p.strips > 1 ? p.pixels + p.window_w - 1 : p.pixels;
  p.band = choice.band;
  p.bands = narrow(ceil_div(reached(h), p.band));
  p.steps = narrow(problem.batch * p.strips * p.bands);
  p.by_bands = FastDivide(p.bands);
  p.by_strips = FastDivide(p.strips);

  p.chunks = narrow(ceil_div(step_pixels(p), chunk_pixels(bytes)));
  const int64_t lines = int64_t{p.chunks} * chunk_pixels(bytes),
                x_lines = lines + (p.window_h - 1) * p.x_pixels + p.window_w - 1;
  p.plane_bytes = narrow(lines * kLine);
  p.x_at = phases(p) * p.plane_bytes;
  p.stage_bytes = narrow(p.x_at + round_up(x_lines * kLine, kSwizzled));
  p.stages = choice.stages;
  p.split = choice.split;
  return p;
}

// Cycles of a step and multiprocessor: of the copy engine,
double copied(const Params& p) {
  return (phases(p) + 1) * kBox + (phases(p) * step_pixels(p) + step_x_pixels(p)) * kBoxRow;
}
// and of those who multiply.
double multiplied(const Problem& problem, const Device& device, const Params& p, Tile tile) {
  const int bytes = size_of(problem);
  const double rate =
      (bytes == 2 ? device.mma_f16_per_us : device.mma_tf32_per_us) / device.sm_count / kClock;
  // Of a warp's chunk.
  const double chunks = std::ceil(double(p.chunks) / sharers(bytes)),
               mmas = tile.phases / 2 * kWindow * p.window_h, mma = mmas * 4096 / bytes / rate;
  const double loads = bytes == 2 ? tile.phases / 2 + kWindow : 2 * tile.phases + 3 * kWindow;
  const double shared = loads * (bytes == 2 ? kMatrices : 1), issued = mmas + 2 * loads + kRest;
  return kStep +
         chunks * std::max({kWarps * std::max(mma, shared), kWarps / 4 * issued, kChunk + 4 * mma});
}

double predict(const Problem& problem, const Device& device, const Params& p, Tile tile) {
  const double copy = copied(p), multiply = multiplied(problem, device, p, tile);
  const double cycles = std::max({copy, multiply, (copy + multiply + kLatency) / p.stages});
  const double waves = std::ceil(double(blocks_of(p)) / device.sm_count);
  // Nobody multiplies the first step while it comes, nor brings anything while the last one is multiplied.
  const double ends = kLatency + std::min(copy, multiply);
  const double busy_us =
      waves * (kBlock + ends + std::ceil(double(p.steps) / p.split) * cycles) / kClock;
  const double unread = double(problem.h.out * problem.w.out - read(problem.h) * read(problem.w)) *
                        problem.batch * problem.groups * size_of(problem);
  return weight_us(problem, device, p.split, busy_us, kCosts, unread);
}

// Every plan, in no order: the same for all devices. `reason` says why there is none.
std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason) {
  std::vector<Candidate<Choice>> found;
  const Axis &h = problem.h, &w = problem.w;
  const int64_t columns = phases_of(w);
  const int64_t most_band =
      reached(w) > most_in_box(w) ? 1 : std::min({int64_t{kMostBand}, reached(h), most_in_box(h)});
  // As many phase rows as a tile has, or as there is room for.
  for (int64_t rows = kTiles[kTileCount - 1].phases / columns; rows > 0 && found.empty();
       rows /= 2) {
    Choice choice{};
    choice.phase_rows = narrow(ceil_div(phases_of(h), ceil_div(phases_of(h), rows)));
    while (kTiles[choice.row].phases < columns * choice.phase_rows) ++choice.row;
    for (choice.band = 1; choice.band <= most_band; ++choice.band) {
      const Params bare = shape(problem, choice);
      choice.stages = std::min((device.smem_optin - kStagesAt) / bare.stage_bytes, kMostStages);
      if (choice.stages < kLeastStages) break;
      for (const int split :
           splits_worth_trying(problem, combinations(bare), bare.steps, step_pixels(bare))) {
        choice.split = split;
        found.push_back(
            {choice, predict(problem, device, shape(problem, choice), kTiles[choice.row])});
      }
    }
  }
  if (found.empty()) reason = "two rows of all phases take more shared memory than there is";
  return found;
}

Plan plan_of(const Problem& problem, const Device& device, const Choice& choice) {
  const Params p = shape(problem, choice);
  Plan plan = weight_sum_plan(problem, device, choice.row, choice.split,
                              predict(problem, device, p, kTiles[choice.row]), kCosts.launch);
  plan.detail[0] = choice.phase_rows, plan.detail[1] = choice.band, plan.detail[2] = choice.stages;
  const auto text = [](int64_t value) { return std::to_string(value); };
  plan.note = text(p.phase_rows) + " x " + text(p.phase_columns) + " phases of " + text(p.band) +
              " x " + text(p.pixels) + " pixels, " + text(p.chunks) + " chunks, " + text(p.stages) +
              " stages, split " + text(p.split) + ", " + text(blocks_of(p)) + " blocks";
  return plan;
}

std::string refusal(const Problem& problem, const Device& device) {
  const auto text = [](int64_t value) { return std::to_string(value); };
  const Axis &h = problem.h, &w = problem.w;
  if (!device.has_wgmma) return "hank is for sm_90a";
  if (problem.direction != Direction::grad_weight) return "hank is for grad_weight";
  if (size_of(problem) != 2 &&
      !(problem.dtype == DType::f32 && problem.precision == Precision::tf32))
    return "hank is for fp16, bf16 and TF32";
  if (problem.x_layout != Layout::nhwc || problem.y_layout != Layout::nhwc)
    return "hank is for NHWC";
  if (problem.group_in() != 1 || problem.group_out() != 1)
    return "hank is for groups of one channel in and one out";
  if (problem.groups * size_of(problem) % 16 != 0)
    return "a pixel's " + text(problem.groups) + " channels are no whole 16 bytes";
  for (const Axis& axis : {h, w}) {
    if (axis.kernel > 1 && axis.dilation != 1) return "hank is for kernels without dilation";
    if (axis.kernel > kWindow * axis.stride)
      return "kernels of " + text(axis.kernel) + " are longer than two strides of " +
             text(axis.stride);
    if (axis.stride > kMostStep)
      return "the copy engine does not step over " + text(axis.stride) + " rows or columns";
  }
  if (problem.wide_index) return "a tensor has more than 2^31 elements";
  return {};
}

}  // namespace

int shared_bytes(const Params& p, Tile tile) {
  return kStagesAt + std::max(p.stages * p.stage_bytes, sum_lines(tile) * kSumLine);
}

int64_t blocks_of(const Params& params) { return combinations(params) * params.split; }

std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason) {
  return all_plans(problem, device, reason, refusal, on_reference(candidates),
                   at_hand(device, plan_of));
}

Decision plan(const Problem& problem, const Device& device) {
  return best_plan(problem, device, refusal, on_reference(candidates), at_hand(device, plan_of));
}

Params params_of(const Problem& problem, const Plan& plan, const Args& args) {
  const int32_t* d = plan.detail;
  Params p = shape(problem, {plan.row, d[0], d[1], d[2], plan.split});
  set_weight_tensors(args, p);
  const auto steps = weight_steps(args, p);
  std::copy(steps.begin(), steps.end(), p.stride);
  return p;
}

// Axes of both: channel, column, row, image.
Maps maps_of(const Problem& problem, const Params& p) {
  const int bytes = size_of(problem);
  const auto map = [&](const void* base, int64_t height, int64_t width, int32_t rows,
                       int32_t pixels, int32_t step_h, int32_t step_w) {
    const int64_t pixel = problem.groups * bytes;
    return encode({base,
                   bytes,
                   4,
                   {problem.groups, width, height, problem.batch},
                   {bytes, pixel, width * pixel, height * width * pixel},
                   {line_channels(bytes), pixels, rows, 1},
                   {1, step_w, step_h, 1}});
  };
  return {map(p.x, p.x_h, p.x_w, p.band + p.window_h - 1, p.x_pixels, 1, 1),
          map(p.y, p.y_h, p.y_w, p.band, p.pixels, p.stride_h, p.stride_w)};
}

}  // namespace convt2d::cuda::hank
