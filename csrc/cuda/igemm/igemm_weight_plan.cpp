#include "cuda/igemm/igemm_weight_plan.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/phases.h"
#include "cuda/cuda_families.h"
#include "cuda/gather_params.h"
#include "cuda/grad_bias/grad_bias.h"
#include "cuda/strict_sums.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda::igemm {
namespace {

// The tile has to fit every GPU from sm_80 on.
constexpr int kSharedLimit = 99 << 10;

// Rates of one multiprocessor: wavefronts (one 128-byte shared-memory or L1 access) a microsecond.
constexpr double kWavefronts = 1700;
constexpr double kLaunch = 2.5;  // us, empty kernel to finished store
// Fitted to 6894 kernel times on the H200, fp16 and tf32, NCHW and NHWC, 44 layers, 2026-11-21.
constexpr double kBlock = 17.5;      // us a wave of blocks takes beside its K tiles
constexpr double kTensorTime = 1.6;  // of what the rates of Device say: 16 bits,
constexpr double kGroupTime = 1.6;   // where four warps multiply together,
constexpr double kWordTime = 0.6;    // words
constexpr double kOverlap = 0.46;    // of what is less busy that is not hidden
constexpr double kNeighbours = 0.7;  // of a K tile where long rows of taps read neighbours, 16 bits
constexpr double kFetch = 1.07;      // us, the first load of a K tile to visible in shared memory
constexpr double kBatch = 0.33;      // us, every further batch of loads
constexpr double kInstruction = 0.0013;  // us, of one producer
constexpr double kTileCost = 250;        // instructions a K tile, of every producer
constexpr double kWords = 2.8;           // times what carrying_cost() says of vectors
constexpr double kLoad = 25;             // instructions a load of pixels,
constexpr double kPiece = 5.5;           // each of its channels,
constexpr double kRound = 0.7;           // and a word that is rounded
constexpr double kWordPlanes =
    0.8;  // of words in NCHW where rows are whole 16 bytes, over that: 32 layers, 0.78 in the mean; 1.2 where they are not (2026-11-26)
constexpr double kL2Rate = 0.49;      // of the copy rate
constexpr double kMemoryRate = 0.88;  // ditto
constexpr double kPartialRate = 2.5;  // times the copy rate's time

int64_t workspace_bytes(const Problem& problem, const WeightParams& p) {
  return writes_partials(p) ? weight_bytes(problem) * p.split : 0;
}

// Blocks side by side on a multiprocessor.
double room(const Device& device, const WeightParams& p, int row, int element_bytes) {
  const double warps = p.warps_m * p.warps_n + p.producers;
  return std::max(1.0, std::min(std::floor(weight_warps(row) / warps),
                                std::floor(device.smem_per_sm /
                                           (weight_map(p, element_bytes).total + 1024.0))));
}

// More stages hide the latency of asynchronous copies, where they cost no other block its place. The sums are the
// same with and without, so this may depend on the GPU.
int stages_that_fit(const Device& device, WeightParams p, int row, const Problem& problem) {
  const int bytes = static_cast<int>(element_size(problem.dtype));
  p.stages = 2;
  if (p.x_mode == kByParcels && p.y_mode == kByParcels) return p.stages;
  const double before = room(device, p, row, bytes);
  for (int stages = 4; stages > 2; --stages) {
    p.stages = stages;
    if (weight_map(p, bytes).total <= device.smem_optin && room(device, p, row, bytes) == before)
      return stages;
  }
  return 2;
}

// Bytes that a K tile's loads take from the L2 cache, in whole sectors.
double sector_bytes(const Problem& problem, const WeightParams& p) {
  const double bytes = static_cast<double>(element_size(problem.dtype));
  const auto rows_of = [&](int mode, double channels, double rows, double width) {
    if (mode == kByVectors) return rows * width * std::max(32.0, channels * bytes);
    return rows * channels * 32 * std::ceil(width * bytes / 32 + 0.4);
  };
  const double reach = double(problem.w.dilation) * (p.w.part - 1);
  return rows_of(p.x_mode, p.row_octets * 8.0, double(p.tile_n) * p.tile_h, p.tile_w) +
         rows_of(p.y_mode, p.octets * 8.0, double(p.tile_n) * p.patch_h,
                 p.y_mode == kByVectors ? double(p.patch_pixels) / (p.tile_n * p.patch_h)
                                        : (p.tile_w - 1.0) * p.w.stride + reach + 1);
}

// What the tensor cores take for their part, over what the rates of Device say.
double tensor_time(WeightTile tile, bool half) {
  return tile.width ? kGroupTime : half ? kTensorTime : kWordTime;
}
// Of a K tile.
double neighbours_time(const Problem& problem) {
  return element_size(problem.dtype) == 2 && problem.x_layout == Layout::nhwc &&
                 problem.w.stride == 1 && problem.w.kernel > 4
             ? kNeighbours
             : 1;
}
// Of all of a kernel.
double planes_time(const Problem& problem) {
  return element_size(problem.dtype) == 4 && problem.x_layout == Layout::nchw &&
                 problem.w.in % 4 == 0 && problem.w.out % 4 == 0
             ? kWordPlanes
             : 1;
}
double l2_time(const Problem& problem, const Device& device, const WeightParams& p) {
  return static_cast<double>(weight_combinations(p)) * static_cast<double>(tiles_of(p)) *
         sector_bytes(problem, p) / (kL2Rate * device.copy_bytes_per_us);
}

double predict(const Problem& problem, const Device& device, const WeightParams& p, int row) {
  const bool half = element_size(problem.dtype) == 2;
  const double bytes = static_cast<double>(element_size(problem.dtype));
  const WeightTile tile = weight_tile(row, static_cast<int>(bytes));
  const double consumers = p.warps_m * p.warps_n;
  const double combos = static_cast<double>(weight_combinations(p));
  const double tiles = static_cast<double>(tiles_of(p)), blocks = combos * p.split;
  const double here = std::min(room(device, p, row, static_cast<int>(bytes)),
                               std::ceil(blocks / device.sm_count));  // blocks side by side
  const double waves = std::ceil(blocks / (device.sm_count * here));
  const double steps = p.pixels / (half ? 16.0 : 8.0);

  // One K tile of all blocks on a multiprocessor. The warps that multiply share its four tensor cores,
  const double mma = here * steps * consumers * tile.row_tiles * tile.units;
  const double rate = (half ? device.mma_f16_per_us : device.mma_tf32_per_us) / device.sm_count;
  const double uneven = std::ceil(here * consumers / 4) * 4 / (here * consumers);
  const double mma_us = tensor_time(tile, half) * uneven * mma * (half ? 2048 : 1024) / rate;
  // all warps shared memory and L1,
  const double x_numbers = p.row_octets * 8.0 * p.pixels;
  const double y_numbers = p.octets * 8.0 * p.y_loads * p.y_run;
  const double staged = (x_numbers + y_numbers) * bytes;
  const double x_parcels = p.x_mode == kByParcels ? x_numbers / (8 * p.x_run) : 0;
  const double y_parcels = p.y_mode == kByParcels ? y_numbers / (8 * p.y_run) : 0;
  const double conflicts =
      p.tile_w % 8 == 0 ? 1 : 1.8;  // rows of a fragment that are not neighbours
  const double fragment_waves =
      tile.width ? 4 + tile.units / 4.0 : tile.row_tiles * 4 + tile.units * conflicts * 2 + 2;
  const double wavefronts =
      here * (steps * consumers * fragment_waves + staged / 128 * (half ? 1 : 3) +
              (x_parcels + y_parcels) / 4 * 2);
  const double lsu_us = wavefronts / kWavefronts;
  // and the four instruction schedulers.
  const double fragments = tile.width ? 1 + tile.units / double(tile.width) * 4
                           : half     ? tile.row_tiles + tile.units / 2.0
                                      : tile.row_tiles * 4 + tile.units * 2.0;
  // Instructions of all lanes; parcels wait for memory and not for these. The lanes of copy_vectors() and
  // copy_pixels() share out planes or channels, and loads.
  const auto carried = [&](double numbers, int mode, int run, int octets, double loads,
                           int producers) {
    if (mode == kByParcels) return 0.0;
    const auto whole = [](double count, double of) { return std::ceil(count / of) * of; };
    const double cost = carrying_cost(mode, run, half ? 2 : 4);
    if (mode == kByVectors) {
      const double planes = octets * bytes / 2, lanes = planes > 4 ? 8 : planes > 2 ? 4 : planes;
      return numbers * cost * (half ? 1 : kWords) * whole(planes, lanes) / planes *
             whole(loads, 32 / lanes * producers) / loads;
    }
    const bool by_loads = shares_loads(static_cast<int>(loads), producers);
    const double loads_each =
        by_loads ? whole(loads, 8 * producers) / (8 * producers) : whole(loads, 8) / 8;
    const double channels =
        by_loads ? octets * 2 : whole(octets * 8, 4 * producers) / (4 * producers);
    return 32 * producers * loads_each * (kLoad + kPiece * channels) +
           numbers * (half ? 0 : kRound);
  };
  const double x_carried = carried(x_numbers, p.x_mode, p.x_run, p.row_octets,
                                   double(p.pixels) / p.x_run, p.x_producers);
  const double y_carried =
      carried(y_numbers, p.y_mode, p.y_run, p.octets, p.y_loads, p.producers - p.x_producers);
  const double instructions =
      (tile.width ? 0 : mma) + here * (steps * consumers * (1.5 * fragments + 8) +
                                       (x_carried + y_carried) / 32 + p.producers * kTileCost);
  const double issue_us = instructions / (4 * kWavefronts);
  const double busiest = std::max({mma_us, lsu_us, issue_us});
  const double busy_us = busiest + kOverlap * (mma_us + lsu_us + issue_us - busiest);
  // A producer's loads wait for the memory, a batch after the other, and its instructions for one another. The
  // slower operand counts.
  const double batch = weight_warps(row) == 16 ? 2 : 4;
  const auto operand_us = [&](double instructions, double parcels, double threads) {
    const double batches = std::ceil(parcels / (threads * batch));
    const double waiting = batches > 0    ? kFetch + kBatch * (batches - 1)
                           : p.stages > 2 ? 0
                                          : kFetch;
    return waiting + kInstruction * (instructions / threads + kTileCost);
  };
  const double producer_us =
      std::max(operand_us(x_carried, x_parcels, 32.0 * p.x_producers),
               operand_us(y_carried, y_parcels, 32.0 * (p.producers - p.x_producers)));
  const double tile_us = neighbours_time(problem) * (std::max(busy_us, producer_us) +
                                                     kOverlap * std::min(busy_us, producer_us));

  const double kernel_us = waves * (kBlock + std::ceil(tiles / p.split) * tile_us);
  const double partial = static_cast<double>(workspace_bytes(problem, p));
  const double memory_us =
      (tensor_bytes(problem) * 1.05 + partial) / (kMemoryRate * device.copy_bytes_per_us);
  const double l2_us = l2_time(problem, device, p);
  const double sum_us = kPartialRate * partial / device.copy_bytes_per_us;
  return kLaunch + std::max({planes_time(problem) * kernel_us, memory_us, l2_us}) + sum_us;
}

// What a block computes of dW, by how much of the tensor cores' work it wastes.
struct BlockShape {
  WeightChoice choice;
  double waste;
  double multiplied;  // by all blocks of a group for each pixel
};

std::vector<BlockShape> block_shapes(const Problem& problem) {
  const int64_t rows = problem.group_in(), octets = ceil_div(problem.group_out(), 8);
  std::vector<int> octet_counts, parts_h, parts_w;
  for (int64_t blocks = 1; blocks <= octets; blocks = blocks < 4 ? blocks + 1 : blocks * 2)
    if (ceil_div(octets, blocks) <= 32) add_once(octet_counts, ceil_div(octets, blocks));
  const auto parts = [](const Axis& axis, std::vector<int>& list) {
    for (int64_t blocks = 1; blocks <= axis.kernel; blocks = blocks < 5 ? blocks + 1 : blocks * 2)
      add_once(list, ceil_div(axis.kernel, blocks));
    add_once(list, 1);
  };
  parts(problem.h, parts_h);
  parts(problem.w, parts_w);
  std::vector<BlockShape> shapes;
  const int bytes = static_cast<int>(element_size(problem.dtype));
  for (int row = 0; row < weight_tile_count(bytes); ++row) {
    const WeightTile tile = weight_tile(row, bytes);
    if (row < 2 && rows <= 8 * tile.row_tiles) continue;
    const int least_m = tile.width ? 4 : 1;
    for (int warps_m = least_m; warps_m <= weight_warps(row) - 4 || warps_m <= 4;
         warps_m = tile.width ? warps_m + 4 : warps_m * 2) {
      const int64_t block_rows = 16 * tile.row_tiles * warps_m;
      if (warps_m > least_m && rows <= block_rows - 16 * tile.row_tiles * least_m) break;
      for (int count : octet_counts)
        for (int h : parts_h)
          for (int w : parts_w) {
            const int64_t warps_n = ceil_div(int64_t{h} * w * count, tile.units);
            if (warps_n * warps_m + 2 > weight_warps(row)) continue;
            if (tile.width && count % tile.width != 0) continue;
            const double done = double(ceil_div(rows, block_rows)) * block_rows *
                                double(ceil_div(octets, count) * ceil_div(problem.h.kernel, h) *
                                       ceil_div(problem.w.kernel, w) * warps_n * tile.units * 8);
            const double useful =
                double(rows * problem.group_out()) * double(problem.h.kernel * problem.w.kernel);
            // Small warps read more for a product, small blocks stage more.
            const double reads =
                tile.width ? 0.1 : 1.0 / (tile.row_tiles * 4) + 1.0 / (tile.units * 2);
            const double staging = 1.0 / double(block_rows) + 1.0 / double(h * w * count * 8);
            shapes.push_back({{row, warps_m, h, w, count, 1, 1, 32, 4, 2, 1},
                              done / useful * (1 + 2 * reads + 20 * staging),
                              done});
          }
    }
  }
  std::sort(shapes.begin(), shapes.end(),
            [](const BlockShape& a, const BlockShape& b) { return a.waste < b.waste; });
  constexpr size_t kMost = 48;
  if (shapes.size() > kMost) shapes.resize(kMost);
  return shapes;
}

// What no way to share the work of a block shape out can be faster than, by predict(): all tensor cores busy all the time.
double least_time(const Problem& problem, const Device& device, const BlockShape& shape,
                  const WeightChoice& tile) {
  const bool half = element_size(problem.dtype) == 2;
  const double pixels = double(ceil_div(problem.batch, tile.tile_n)) *
                        double(ceil_div(problem.h.in, tile.tile_h)) *
                        double(ceil_div(problem.w.in, tile.tile_w)) *
                        double(ceil_div(tile.tile_n * tile.tile_h * tile.tile_w, 32) * 32);
  const double multiply_us = tensor_time(weight_tile(shape.choice.row, half ? 2 : 4), half) *
                             neighbours_time(problem) * double(problem.groups) * pixels *
                             shape.multiplied /
                             (half ? device.mma_f16_per_us : device.mma_tf32_per_us);
  return kLaunch + planes_time(problem) * (kBlock + multiply_us);
}

// K tiles worth looking at: as many columns as divide well, then rows, then images.
std::vector<WeightChoice> pixel_tiles(const Problem& problem) {
  // Of rows of pixels, at least a sector.
  const bool rows = problem.x_layout != Layout::nhwc || problem.y_layout != Layout::nhwc;
  const int64_t least = rows ? 32 / element_size(problem.dtype) : 8;
  std::vector<WeightChoice> tiles;
  for (int pixels = 32; pixels <= 256; pixels *= 2) {
    std::vector<int> widths;
    for (int64_t width = 1; width <= pixels; width *= 2)
      if (width < 2 * problem.w.in && (width >= least || width >= problem.w.in))
        for (int64_t round : {2, 8})  // 8: for warps that multiply together
          add_once(widths, std::min(width, ceil_div(problem.w.in, round) * round));
    for (int width : widths) {
      const int64_t most = std::max<int64_t>(1, pixels / width);
      const int64_t h = ceil_div(problem.h.in, ceil_div(problem.h.in, most));
      const bool whole = h == problem.h.in && width >= problem.w.in;
      const int64_t n =
          whole ? std::min(problem.batch, std::max<int64_t>(1, pixels / (width * h))) : 1;
      const WeightChoice tile{0,     0, 0, 0, 0, static_cast<int>(n), static_cast<int>(h),
                              width, 1, 2, 1};
      const auto same = [&](const WeightChoice& t) {
        return t.tile_n == tile.tile_n && t.tile_h == tile.tile_h && t.tile_w == tile.tile_w;
      };
      if (std::none_of(tiles.begin(), tiles.end(), same)) tiles.push_back(tile);
    }
  }
  return tiles;
}

}  // namespace

std::vector<WeightCandidate> weight_candidates(const Problem& problem, const Device& device,
                                               std::string& reason, Best* best) {
  std::vector<WeightCandidate> found;
  const int bytes = static_cast<int>(element_size(problem.dtype));
  const int64_t most_pieces = kWorkspaceLimit / weight_bytes(problem);
  const std::vector<WeightChoice> tiles = pixel_tiles(problem);
  for (const BlockShape& shape : block_shapes(problem))
    for (const WeightChoice& tile : tiles) {
      WeightChoice choice = shape.choice;
      choice.tile_n = tile.tile_n, choice.tile_h = tile.tile_h, choice.tile_w = tile.tile_w;
      if (best && best->beats(least_time(problem, device, shape, tile))) continue;
      WeightParams params;
      if (std::string why = weight_shape(problem, choice, params); !why.empty()) {
        reason = why;
        continue;
      }
      if (!weight_tile(choice.row, bytes).x_in_registers && params.x_mode != kByVectors) continue;
      if (const int shared = weight_map(params, bytes).total; shared > kSharedLimit) {
        reason = "a tile needs " + std::to_string(shared) + " bytes of shared memory";
        continue;
      }
      const int64_t combos = weight_combinations(params);
      if (combos > INT32_MAX) {
        reason = "dW has " + std::to_string(combos) + " tiles";
        continue;
      }
      if (best && best->beats(kLaunch + l2_time(problem, device, params))) continue;
      std::vector<int> splits;
      const int64_t most = std::min({most_pieces, tiles_of(params), INT32_MAX / combos});
      for (int64_t blocks : {0, 132, 264, 396, 528, 1056})
        add_once(splits, std::max<int64_t>(1, std::min(most, blocks / combos)));
      // Whole blocks of warps on a multiprocessor: 4, 3, 2 or 1 of them.
      const int warps = weight_warps(choice.row);
      for (int blocks = 1; blocks <= 4; ++blocks) {
        choice.producers = warps / blocks - params.warps_m * params.warps_n;
        if (choice.producers < 2) continue;
        params.producers = choice.producers;
        params.x_producers = x_producers(params, bytes);
        params.stages = choice.stages = stages_that_fit(device, params, choice.row, problem);
        for (int split : splits) {
          params.split = choice.split = split;
          if (workspace_bytes(problem, params) > kWorkspaceLimit) {
            reason =
                "partial sums take " + std::to_string(workspace_bytes(problem, params)) + " bytes";
            continue;
          }
          found.push_back({choice, predict(problem, device, params, choice.row)});
          if (best)
            best->found(found.back().predicted_us, least_time(problem, device, shape, tile));
        }
      }
    }
  return found;
}

Plan weight_plan_of(const Problem& problem, const Device& device,
                    const WeightCandidate& candidate) {
  const WeightChoice& c = candidate.choice;
  WeightParams params;
  weight_shape(problem, c, params);
  Plan plan;
  plan.row = c.row;
  plan.split = c.split;
  plan.workspace_bytes = workspace_bytes(problem, params);
  plan.predicted_us = candidate.predicted_us;
  add_grad_bias(problem, device, kLaunch, plan);
  const int detail[] = {
      c.warps_m, c.taps_h << 8 | c.taps_w, c.octets, c.tile_n, c.tile_h, c.tile_w, c.producers,
      c.stages};
  std::copy(std::begin(detail), std::end(detail), plan.detail);
  plan.note = std::to_string(params.row_octets * 8) + " x " + std::to_string(c.octets * 8) +
              " channels, " + std::to_string(c.taps_h) + "x" + std::to_string(c.taps_w) +
              " taps, " + std::to_string(params.warps_m * params.warps_n) + "+" +
              std::to_string(c.producers) + " warps, tile " + std::to_string(c.tile_n) + "x" +
              std::to_string(c.tile_h) + "x" + std::to_string(c.tile_w) + ", split " +
              std::to_string(c.split) + ", " +
              std::to_string(weight_combinations(params) * c.split) + " blocks";
  return plan;
}

WeightChoice weight_choice_of(const Plan& plan) {
  const int32_t* d = plan.detail;
  return {plan.row, d[0], d[1] >> 8, d[1] & 255, d[2], d[3], d[4], d[5], d[6], d[7], plan.split};
}

Decision weight_plan(const Problem& problem, const Device& device, Best best) {
  if (is_strict(problem)) return Decision::decline("grad_weight in strict fp32 is left to direct");
  if (problem.wide_index) return Decision::decline("a tensor has more than 2^31 elements");
  std::string reason = "no tile fits";
  best = best_on_reference(device, best);
  const std::vector<WeightCandidate> found =
      weight_candidates(problem, reference_gpu(), reason, &best);
  if (found.empty()) return Decision::decline(reason);
  WeightCandidate least = cheapest(found);
  WeightParams params;
  weight_shape(problem, least.choice, params);
  least.choice.stages = params.stages = stages_that_fit(device, params, least.choice.row, problem);
  least.predicted_us = predict(problem, device, params, least.choice.row);
  return Decision::accept(weight_plan_of(problem, device, least));
}

}  // namespace convt2d::cuda::igemm
