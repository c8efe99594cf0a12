#include "cuda/hopper/hopper_weight_plan.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/phases.h"
#include "cuda/cuda_families.h"
#include "cuda/gather_params.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda::hopper {
namespace {

// Fitted to 1280 times on the H200 (kernel_bench sweep of bench/layers.json, fp16; 2026-11-21).
constexpr double kClock = 1700;        // cycles a microsecond
constexpr double kLaunch = 5.9;        // us
constexpr double kBlock = 8760;        // cycles, of a block beside its K tiles
constexpr double kL2Bytes = 53;        // a cycle, of long runs,
constexpr double kShortRun = 0.71;     // and what a run of a single block of channels adds
constexpr double kRest = 0.036;        // of what is less busy that is not hidden
constexpr double kMemoryRate = 0.9;    // of the copy rate
constexpr double kBeside = 0.23;       // of the lesser of work and bytes
constexpr double kPartialRate = 1.28;  // times the copy rate's time, to write and to add up
constexpr double kBringRow = 20;       // 32 pieces that threads bring

// Of a K tile.
double tile_cycles(const WeightParams& p, WeightTile tile) {
  const double instructions = kTileSteps * tile.instructions * tile.groups;
  const double x_rows = double(p.x_blocks) * tile_pixels(p);
  const double y_rows = double(std::min(p.planes, p.taps)) * p.y_blocks * patch_pixels(p);
  const double mma = instructions * tile.width / 2;
  // Reading both operands and writing what is copied, 128 bytes a cycle.
  const double shared = instructions * (kCellChannels + tile.width) / 4 + x_rows + y_rows;
  const double l2 =
      (x_rows * (1 + kShortRun / p.x_blocks) + y_rows * (1 + kShortRun / p.y_blocks)) * kRowBytes /
      kL2Bytes;
  const double bring = p.x_piece > 0 ? kBringRow * x_rows * 4 / p.x_piece : 0;
  const double busiest = std::max({mma, shared, l2, bring});
  return busiest + kRest * (mma + shared + l2 + bring - busiest);
}

double predict(const Problem& problem, const Device& device, const WeightParams& p, double cycles) {
  const double blocks = double(weight_combinations(p)) * p.split;
  const double tiles = std::ceil(double(tiles_of(p)) / p.split);
  const double busy_us = std::ceil(blocks / device.sm_count) * (kBlock + tiles * cycles) / kClock;
  const double partial = static_cast<double>(partial_bytes(problem, p.split));
  const double memory_us =
      (read_bytes(problem) + partial) / (kMemoryRate * device.copy_bytes_per_us);
  return kLaunch + std::max(busy_us, memory_us) + kBeside * std::min(busy_us, memory_us) +
         kPartialRate * partial / device.copy_bytes_per_us;
}

struct PixelTile {
  int n, h, w;
  bool shared;
};

// K tiles worth looking at: the few that waste least.
std::vector<PixelTile> pixel_tiles(const Problem& problem) {
  const auto most_n = [&](int64_t pixels) {
    return static_cast<int>(std::max<int64_t>(1, std::min(problem.batch, kTilePixels / pixels)));
  };
  // As few tiles as can be, then as wide ones; the first of equals.
  constexpr size_t kMost = 3;
  struct Ranked {
    PixelTile tile;
    std::pair<int64_t, int> rank;
  };
  std::vector<PixelTile> found;
  std::vector<Ranked> best;
  const auto offer = [&](const PixelTile& t) {
    const std::pair rank = {
        ceil_div(problem.batch, t.n) * ceil_div(problem.h.in, t.h) * ceil_div(problem.w.in, t.w),
        -t.w};
    if (best.size() == kMost && rank >= best.back().rank) return;
    if (best.size() == kMost) best.pop_back();
    const auto place = std::upper_bound(best.begin(), best.end(), rank,
                                        [](const auto& a, const Ranked& b) { return a < b.rank; });
    best.insert(place, {t, rank});
  };
  const auto take = [&] {
    for (const Ranked& ranked : best) found.push_back(ranked.tile);
    best.clear();
  };
  for (int w = 1; w <= std::min<int64_t>(kTilePixels, problem.w.in); ++w)
    for (int h = 1; h <= std::min<int64_t>(kTilePixels / w, problem.h.in); ++h)
      offer({most_n(w * h), h, w, false});
  take();
  for (int w = kStepPixels; w <= kTilePixels; w *= 2)
    for (int h = 1; h <= kTilePixels / w; h *= 2) offer({kTilePixels / (w * h), h, w, true});
  take();
  return found;
}

// How the cells of a block are made up.
std::vector<WeightChoice> block_shapes(const Problem& problem) {
  const int64_t rows = ceil_div(problem.group_in(), kCellChannels),
                columns = ceil_div(problem.group_out(), kCellChannels);
  std::vector<WeightChoice> shapes;
  for (int row = 0; row < kWeightTileCount; ++row) {
    const WeightTile tile = kWeightTiles[row];
    const int instructions = tile.instructions * tile.groups;
    for (int x_blocks = 1; x_blocks <= std::min<int64_t>(instructions, rows); ++x_blocks) {
      if (instructions % x_blocks != 0) continue;
      const int cells = instructions / x_blocks * (tile.width / kCellChannels);
      for (int y_blocks = 1; y_blocks <= std::min<int64_t>(cells, columns); ++y_blocks)
        if (cells % y_blocks == 0)
          shapes.push_back({row, x_blocks, y_blocks, cells / y_blocks, false, 1, 1, 1, 2, 1});
    }
  }
  return shapes;
}

// What no split of a tile can take less than.
double least_time(const Problem& problem, const Device& device, const WeightChoice& c) {
  const WeightTile tile = kWeightTiles[c.row];
  const double instructions = kTileSteps * tile.instructions * tile.groups,
               x_rows = double(c.x_blocks) * c.tile_n * c.tile_h * c.tile_w;
  const double cycles = std::max({instructions * tile.width / 2,
                                  instructions * (kCellChannels + tile.width) / 4 + x_rows,
                                  x_rows * (1 + kShortRun / c.x_blocks) * kRowBytes / kL2Bytes});
  const double tiles = double(ceil_div(problem.batch, c.tile_n)) *
                       double(ceil_div(problem.h.in, c.tile_h)) *
                       double(ceil_div(problem.w.in, c.tile_w)),
               combos = double(problem.groups) *
                        double(ceil_div(problem.group_in(), c.x_blocks * kCellChannels)) *
                        double(ceil_div(problem.group_out(), c.y_blocks * kCellChannels)) *
                        double(ceil_div(problem.h.kernel * problem.w.kernel, c.unit_taps));
  const double busy_us = (kBlock + combos * tiles / device.sm_count * cycles) / kClock,
               memory_us = read_bytes(problem) / (kMemoryRate * device.copy_bytes_per_us);
  return kLaunch + std::max(busy_us, memory_us) + kBeside * std::min(busy_us, memory_us);
}

}  // namespace

std::vector<WeightCandidate> weight_candidates(const Problem& problem, const Device& device,
                                               std::string& reason, bool spooled, int beside,
                                               Best* best) {
  std::vector<WeightCandidate> found;
  const std::vector<PixelTile> tiles = pixel_tiles(problem);
  for (WeightChoice choice : block_shapes(problem))
    for (const PixelTile& tile : tiles) {
      choice.tile_n = tile.n, choice.tile_h = tile.h, choice.tile_w = tile.w;
      choice.shared = tile.shared;
      if (choice.shared && choice.unit_taps == 1) continue;
      const double least = least_time(problem, device, choice);
      if (best && best->beats(least)) continue;
      WeightParams params;
      if (std::string why = weight_shape(problem, choice, params, spooled); !why.empty()) {
        reason = why;
        continue;
      }
      const int stages =
          (device.smem_optin - beside - kStagesAt - kReach) / weight_stage_bytes(params);
      if (stages < 2) {
        reason = "a K tile takes " + std::to_string(weight_stage_bytes(params)) +
                 " bytes of shared memory";
        continue;
      }
      params.stages = choice.stages = std::min(stages, kMostTileStages);
      const int64_t combos = weight_combinations(params);
      if (combos > INT32_MAX) {
        reason = "dW has " + std::to_string(combos) + " tiles";
        continue;
      }
      const double cycles = tile_cycles(params, kWeightTiles[choice.row]);
      for (int split : splits_worth_trying(problem, combos, tiles_of(params), kTilePixels)) {
        params.split = choice.split = split;
        found.push_back({choice, predict(problem, device, params, cycles)});
        if (best && !spooled) best->found(found.back().predicted_us, least);
      }
    }
  return found;
}

double weight_time(const Problem& problem, const Device& device, const WeightChoice& choice,
                   bool spooled) {
  WeightParams params;
  weight_shape(problem, choice, params, spooled);
  return predict(problem, device, params, tile_cycles(params, kWeightTiles[choice.row]));
}

Plan weight_plan_of(const Problem& problem, const Device& device, const WeightCandidate& candidate,
                    bool spooled) {
  const WeightChoice& c = candidate.choice;
  const WeightTile tile = kWeightTiles[c.row];
  const auto shape = std::make_shared<WeightParams>();
  WeightParams& params = *shape;
  weight_shape(problem, c, params, spooled);
  Plan plan = weight_sum_plan(problem, device, c.row, c.split, candidate.predicted_us, kLaunch);
  plan.prepared = shape;
  const int detail[] = {c.x_blocks, c.y_blocks, c.unit_taps, c.shared,
                        c.tile_n,   c.tile_h,   c.tile_w,    c.stages};
  std::copy(std::begin(detail), std::end(detail), plan.detail);
  plan.note = std::to_string(c.x_blocks * kCellChannels) + " x " +
              std::to_string(c.y_blocks * kCellChannels) + " channels, " +
              std::to_string(c.unit_taps) + " taps, " + (c.shared ? "shared" : "own") +
              " planes, " + std::to_string(tile.groups) + " groups of " +
              std::to_string(tile.instructions) + " x " + std::to_string(tile.width) +
              " columns, tile " + std::to_string(c.tile_n) + "x" + std::to_string(c.tile_h) + "x" +
              std::to_string(c.tile_w) + " x " + std::to_string(c.stages) + " stages, split " +
              std::to_string(c.split) + ", " +
              std::to_string(weight_combinations(params) * c.split) + " blocks";
  return plan;
}

WeightChoice weight_choice_of(const Plan& plan) {
  const int32_t* d = plan.detail;
  return {plan.row, d[0], d[1], d[2], d[3] != 0, d[4], d[5], d[6], d[7], plan.split};
}

Decision weight_plan(const Problem& problem, const Device& device, Best best) {
  const auto whole = [&](Layout layout, int64_t channels, int64_t of) {
    return layout == Layout::nhwc && channels % of == 0;
  };
  if (element_size(problem.dtype) != 2)
    return Decision::decline(
        "grad_weight of 32-bit numbers, which wgmma cannot turn, is left to igemm and direct");
  if (!whole(problem.x_layout, problem.group_in(), 2) ||
      !whole(problem.y_layout, problem.group_out(), 8))
    return Decision::decline(
        "grad_weight of what is not vectors of channels, of x pairs, is left to igemm");
  if (problem.wide_index) return Decision::decline("a tensor has more than 2^31 elements");
  std::string reason = "no tile fits";
  best = best_on_reference(device, best);
  const std::vector<WeightCandidate> found =
      weight_candidates(problem, reference_gpu(), reason, false, 0, &best);
  if (found.empty()) return Decision::decline(reason);
  WeightCandidate least = cheapest(found);
  least.predicted_us = weight_time(problem, device, least.choice);
  return Decision::accept(weight_plan_of(problem, device, least));
}

}  // namespace convt2d::cuda::hopper
