#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "cuda/gather_params.h"
#include "cuda/strand/strand_plan.h"
#include "cuda/strict_sums.h"
#include "cuda/tensor_map.h"

namespace convt2d::cuda::strand {
namespace {

// Counted; what is dated was measured.
constexpr double kClock = 1700;                   // cycles a microsecond
constexpr double kLaunch = 9.5;                   // us: launch, cold code, the way out
constexpr double kClusters = 1.5;                 // us: a cluster starts, its sums are added
constexpr double kFirst = 1500;                   // cycles until the first unit is there
constexpr double kTensorTime = 1.2;               // of what the rates of Device say
constexpr double kSplit = 5;                      // instructions of a warp: 32 words split,
constexpr double kFetch = 4;                      // two operands of dY fetched,
constexpr double kStepRest = 20, kUnitRest = 30;  // and what a step and a unit take beside them
constexpr double kL2Bytes = 40;                   // a cycle that reach a multiprocessor,
constexpr double kLine = 2;                       // or cycles of 128 bytes of a box's row,
constexpr double kL2Rate = 1.15;                  // and all of them, times the copy rate
constexpr double kRest = 0.15;                    // of what is less busy that is not hidden
constexpr double kOutside = 0.3;                  // and of memory's time
constexpr double kMemoryRate = 0.8;               // of the copy rate
constexpr double kStrictTime =
    1.3;  // of strict fp32's work over what is counted (hifigan_u0, 2026-11-24)
constexpr double kStored = 40;  // cycles: four sums of each thread, added and stored

constexpr int kFewestStages = 3, kMostStages = 8;
constexpr int kTurns = 4;  // steps of a team and unit, if there is room

struct DenseChoice {
  int row, width_bits, height_bits, ranks;
};

int64_t plane_bytes(const Problem& problem) {
  return problem.h.kernel * problem.w.kernel * size_of(problem);
}

void shape(const Problem& problem, const DenseChoice& choice, DenseParams& p) {
  const Axis &h = problem.h, &w = problem.w;
  const DenseTile tile = dense_tile(choice.row, is_strict(problem));
  const int64_t size = size_of(problem), width = int64_t{1} << choice.width_bits,
                height = int64_t{1} << choice.height_bits, images = tile.positions / width / height;
  const auto set = [](int32_t& to, int64_t value) {
    to = static_cast<int32_t>(std::min<int64_t>(value, INT32_MAX / 2));
  };
  p = {};
  p.width_bits = choice.width_bits;
  p.height_bits = choice.height_bits;
  p.ranks = choice.ranks;
  set(p.tiles_w, ceil_div(w.in, width));
  set(p.tiles_h, ceil_div(h.in, height));
  set(p.tiles_n, ceil_div(problem.batch, images));
  set(p.column_tiles, ceil_div(problem.in_channels, tile.columns));
  set(p.x_h, h.in);
  set(p.x_w, w.in);
  set(p.images, problem.batch);
  set(p.kernel_h, h.kernel);
  set(p.kernel_row, w.kernel * size);
  // A unit: whole boxes of weights, and a few steps of each team, if there is room for stages.
  const int64_t plane = plane_bytes(problem), least = kDenseWeights / gcd(plane, kDenseWeights);
  const int64_t vector = 16 / size, before = round_up(w.near_pad, vector);
  set(p.early_numbers, before);
  set(p.early, (before - w.near_pad) * size);
  set(p.row_pitch,
      round_up((before - w.near_pad) + (width - 1) * w.stride + w.kernel, vector) * size);
  set(p.plane_pitch, ((height - 1) * h.stride + h.kernel) * p.row_pitch);
  set(p.position_step, w.stride * size);
  const auto stage = [&](int64_t planes) {
    return round_up(images * planes * p.plane_pitch, 1024) + planes * plane * tile.columns;
  };
  int64_t planes = least;
  while (planes * plane / kStep < int64_t{kTurns} * dense_teams(tile) &&
         planes < problem.out_channels && 4 * stage(2 * planes) <= 192 * 1024)
    planes *= 2;
  set(p.planes, planes);
  set(p.units, ceil_div(problem.out_channels, planes));
  set(p.steps, planes * plane / kStep);
  set(p.image_pitch, planes * p.plane_pitch);
  set(p.source_bytes, images * p.image_pitch);
  set(p.weights_at, round_up(p.source_bytes, 1024));
  set(p.weight_boxes, planes * plane / kDenseWeights);
  set(p.stage_bytes, stage(planes));
  p.lane_row = p.kernel_row == 8 ? p.row_pitch - 8 : 0;
  p.half = p.kernel_row == 8 ? 2 * p.row_pitch : p.kernel_row == 16 ? p.row_pitch : 16;
  p.swapped = p.half == 16 && p.position_step % 32 == 0;
}

// As many stages as there is room for, and units; or fewer than kFewestStages.
void set_stages(const Problem& problem, const Device& device, int row, DenseParams& p) {
  const DenseTile tile = dense_tile(row, is_strict(problem));
  const int64_t sums = int64_t{dense_teams(tile)} * dense_sum_bytes(tile);
  place_stages(kMostStages, p);
  const int64_t room = int64_t{device.smem_optin} - p.stages_at;
  p.stages = static_cast<int32_t>(std::min<int64_t>(room / p.stage_bytes, kMostStages));
  p.shared_bytes = static_cast<int32_t>(p.stages_at +
                                        std::max<int64_t>(sums, int64_t{p.stages} * p.stage_bytes));
}

double predict(const Problem& problem, const Device& device, int row, const DenseParams& p) {
  const double size = static_cast<double>(size_of(problem));
  const bool half = size == 2, strict = is_strict(problem);
  const DenseTile tile = dense_tile(row, strict);
  const double products = strict ? 3 : 1;
  // Of a unit, cycles of a multiprocessor: its tensor cores,
  const double rate = (half ? device.mma_f16_per_us : device.mma_tf32_per_us) / device.sm_count /
                      kClock / kTensorTime;
  const double mma =
      double(tile.positions) * tile.columns * (p.steps * kStep / size) * products / rate;
  // its four issuers,
  const double m = tile.sixteens, n = tile.eights, words = 4 * m + 2 * n;
  const double step = 2 * m * kFetch + n + m * n * products + kStepRest + (p.swapped ? 4 * m : 0) +
                      (strict ? words * kSplit + m * n * 2 : 0);
  const double turns = std::ceil(double(p.steps) / dense_teams(tile));
  const double issue = (turns * step + kUnitRest) * kDenseWarps / 4;
  // shared memory, of which eight positions may lie in few banks,
  const int banks = std::max(4, std::min<int>(p.position_step, 128) / 4);
  const double meet = std::max(1.0, banks / (p.swapped ? 8.0 : 4.0));
  const double bytes = p.source_bytes + double(p.weight_boxes) * kDenseWeights * tile.columns;
  const double shared = p.steps * dense_groups(tile) * (4 * m * meet + 2 * n) + bytes / 128;
  // and what comes to it.
  const double lines = double(p.source_bytes) / p.row_pitch * std::ceil(p.row_pitch / 128.0) +
                       double(p.weight_boxes) * tile.columns;
  const double l2 = std::max(bytes / kL2Bytes, lines * kLine);
  const double busiest = std::max({mma, issue, shared, l2});
  const double cycles =
      (strict ? kStrictTime : 1) * (busiest + kRest * (mma + issue + shared + l2 - busiest));
  const double blocks = static_cast<double>(dense_tiles_of(p)) * p.ranks;
  const double units = std::ceil(double(p.units) / p.ranks);
  const double rounds = rounds_of(device, dense_tiles_of(p), p.ranks, 1);
  const double stored = double(tile.positions) * tile.columns / 4 / kDenseThreads;
  const double busy_us =
      rounds * (units * cycles + kFirst + kStored * stored * (dense_teams(tile) + 2)) / kClock;
  const double l2_us = blocks * units * bytes / (kL2Rate * device.copy_bytes_per_us);
  const double memory_us = tensor_bytes(problem) / (kMemoryRate * device.copy_bytes_per_us);
  return kLaunch + (p.ranks > 1 ? kClusters : 0) + std::max({busy_us, l2_us, memory_us}) +
         kOutside * std::min(busy_us, std::max(l2_us, memory_us));
}

// Of each tile and number of ranks the best way to lay it over dX.
std::vector<Candidate<DenseChoice>> candidates(const Problem& problem, const Device& device,
                                               std::string& reason) {
  std::vector<Candidate<DenseChoice>> found;
  for (int row = 0; row < kDenseTileCount; ++row)
    for (const int ranks : {1, 2, 3, 4, 6, 8}) {
      std::vector<Candidate<DenseChoice>> ways;
      for (int width = 3; width <= 6; ++width)
        for (int height = 0; height + width <= 7; ++height) {
          if (height && 1 << (height - 1) >= problem.h.in) break;
          DenseParams p;
          shape(problem, {row, width, height, ranks}, p);
          const int64_t rows = p.plane_pitch / p.row_pitch;
          if (p.row_pitch / size_of(problem) > kMostSpan || rows > kMostSpan ||
              p.planes > kMostSpan || (problem.w.stride << width) * size_of(problem) % 16 != 0) {
            reason = "a box of rows is too long";
            continue;
          }
          if (ranks > 1 &&
              (ranks > p.units || dense_tiles_of(p) * ranks > 2 * int64_t{device.sm_count}))
            continue;
          set_stages(problem, device, row, p);
          if (p.stages < kFewestStages || p.shared_bytes > device.smem_optin) {
            reason = "three units need " + std::to_string(3 * int64_t{p.stage_bytes}) +
                     " bytes of shared memory";
            continue;
          }
          ways.push_back({{row, width, height, ranks}, predict(problem, device, row, p)});
        }
      if (!ways.empty()) found.push_back(cheapest(ways));
    }
  return found;
}

Plan plan_of(const Problem& problem, const Device& device,
             const Candidate<DenseChoice>& candidate) {
  const DenseChoice& choice = candidate.choice;
  const DenseTile tile = dense_tile(choice.row, is_strict(problem));
  DenseParams p;
  shape(problem, choice, p);
  set_stages(problem, device, choice.row, p);
  const auto number = [](int64_t value) { return std::to_string(value); };
  Plan plan;
  plan.row = kTileCount + kWindowTileCount + choice.row;
  plan.split = choice.ranks;
  plan.detail[0] = choice.width_bits;
  plan.detail[1] = p.stages;
  plan.detail[2] = p.shared_bytes;
  plan.detail[3] = choice.height_bits;
  plan.predicted_us = candidate.predicted_us;
  plan.note = "dense rows, " + number(tile.columns) + " channels x " +
              number(tile.positions >> (choice.width_bits + choice.height_bits)) + "x" +
              number(1 << choice.height_bits) + "x" + number(1 << choice.width_bits) +
              " positions, " + number(p.planes) + " planes by " + number(p.row_pitch) + " bytes, " +
              number(p.stages) + " stages, " + number(dense_tiles_of(p)) + " tiles";
  if (p.ranks > 1) plan.note += ", K split over a cluster of " + number(p.ranks);
  return plan;
}

std::string refusal(const Problem& problem, const Device& device) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  const Axis &h = problem.h, &w = problem.w;
  const int64_t size = size_of(problem), row = w.kernel * size, plane = plane_bytes(problem);
  if (!device.has_wgmma) return "dense rows are for sm_90a";
  if (problem.y_layout != Layout::nchw) return "dense rows are for NCHW";
  if (size != 4) return "dense rows of 16 bits are no faster";  // hifigan_u0, 2026-11-24
  if (problem.groups != 1) return number(problem.groups) + " groups";
  if (h.dilation != 1 || w.dilation != 1) return "taps lie apart";
  if (w.near_pad < 0) return "dY's rows are cut at their start";
  if (w.out * size % 16 != 0) return "rows of " + number(w.out * size) + " bytes";
  if (plane % kStep != 0 || (row % kStep != 0 && row != 16 && row != 8))
    return "kernels of " + number(h.kernel) + " rows of " + number(row) + " bytes";
  if (w.stride * size % 4 != 0 || w.near_pad * size % 4 != 0)
    return "steps or padding of no whole words";
  if (kDenseWeights / gcd(plane, kDenseWeights) > kMostSpan || plane > 64 * 1024)
    return "kernels of " + number(plane) + " bytes";
  return {};
}

}  // namespace

int64_t dense_tiles_of(const DenseParams& p) {
  return int64_t{p.column_tiles} * p.tiles_w * p.tiles_h * p.tiles_n;
}

std::vector<Plan> dense_plans(const Problem& problem, const Device& device, std::string& reason) {
  return all_plans(problem, device, reason, refusal, candidates, described_on(device, plan_of));
}

Decision dense_plan(const Problem& problem, const Device& device) {
  const auto refuse = [](const Problem& problem, const Device& device) -> std::string {
    const std::string reason = refusal(problem, device);
    if (!reason.empty()) return reason;
    const int64_t tiles = ceil_div(problem.batch * problem.h.in * problem.w.in, 128) *
                          ceil_div(problem.in_channels, 128);
    if (tiles > int64_t{kMostTiles} * device.sm_count)
      return "dX has " + std::to_string(tiles) + " tiles of dense rows, more than few";
    return {};
  };
  return best_plan(problem, device, refuse, candidates, described_on(device, plan_of));
}

DenseParams dense_params_of(const Problem& problem, const Plan& plan, const Args& args) {
  DenseParams p;
  shape(problem, {dense_row_of(plan), plan.detail[0], plan.detail[3], plan.split}, p);
  place_stages(kMostStages, p);
  p.stages = plan.detail[1];
  p.shared_bytes = plan.detail[2];
  Plan plain;  // any other tile: what is summed again knows no tiles
  p.base = params_of(problem, plain, args);
  return p;
}

CUtensorMap map_of_dense(const Problem& problem, const DenseParams& p) {
  const int64_t size = size_of(problem), row = problem.w.out * size, plane = row * problem.h.out;
  const int32_t images = p.source_bytes / p.image_pitch, rows = p.plane_pitch / p.row_pitch;
  return encode({p.base.source,
                 static_cast<int>(size),
                 4,
                 {problem.w.out, problem.h.out, problem.out_channels, problem.batch},
                 {size, row, plane, plane * problem.out_channels},
                 {static_cast<int32_t>(p.row_pitch / size), rows, p.planes, images},
                 {1, 1, 1, 1},
                 false,
                 !is_strict(problem)});
}

CUtensorMap map_of_dense_weights(const Problem& problem, const DenseParams& p, int columns) {
  const int64_t size = size_of(problem), sums = int64_t{p.base.reduce}, row = sums * size;
  return encode({p.base.weight,
                 static_cast<int>(size),
                 4,
                 {sums, problem.in_channels, 1, 1},
                 {size, row, row * problem.in_channels, row * problem.in_channels},
                 {static_cast<int32_t>(kDenseWeights / size), columns, 1, 1},
                 {1, 1, 1, 1},
                 true,
                 !is_strict(problem)});
}

}  // namespace convt2d::cuda::strand
