#include "cuda/plain/plain_plan.h"

#include <algorithm>
#include <cmath>

#include "core/phases.h"
#include "cuda/cuda_families.h"
#include "cuda/gather_params.h"
#include "cuda/tensor_map.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda::plain {
namespace {

// Counted, not fitted.
constexpr double kClock = 1700;       // cycles a microsecond
constexpr double kLaunch = 6;         // us: launch, first boxes, last stores
constexpr double kTile = 900;         // cycles of a tile of a warpgroup beside its products,
constexpr double kStored = 7;         // and of 64 channels' pixels, each, on their way out
constexpr double kChunk = 60;         // bytes beside its products
constexpr double kTensorTime = 1.15;  // over an instruction's least
constexpr double kArriving = 44;      // bytes a cycle that come to a multiprocessor
constexpr double kMemoryRate = 0.88;  // of the copy rate
constexpr double kL2Rate = 1.6;       // times the copy rate
constexpr double kBeside = 0.1;       // of the lesser of work and bytes
constexpr double kSum = 3.4;          // us, the second pass of grad_weight,
constexpr double kPartialRate = 1.5;  // and times the copy rate's time
constexpr double kFlush = 30;         // cycles of a sum of each thread on its way out

struct Choice {
  int row, resident, split;
  int stages, walkers;
};

// Bytes of a tensor's planes once.
double plane_bytes(const Problem& p, int64_t channels) {
  return 2.0 * double(p.batch) * double(channels) * double(p.h.in) * double(p.w.in);
}

int64_t combinations(const Params& p) { return int64_t{p.groups} * p.row_tiles; }
int64_t combinations(const WeightParams& p) {
  return int64_t{p.groups} * p.row_tiles * p.column_tiles;
}

// All but what depends on the device, and pointers.
Params shape(const Problem& problem, int row, int resident) {
  const Tile tile = kTiles[row];
  const bool forward = problem.direction == Direction::fwd;
  const int64_t pixels = problem.h.in * problem.w.in, image_tiles = ceil_div(pixels, tile.width);
  Params p{};
  p.groups = static_cast<int32_t>(problem.groups);
  p.rows = static_cast<int32_t>(forward ? problem.group_out() : problem.group_in());
  p.reduce = static_cast<int32_t>(forward ? problem.group_in() : problem.group_out());
  p.pixels = static_cast<int32_t>(pixels);
  p.row_tiles = static_cast<int32_t>(ceil_div(p.rows, tile_rows(tile)));
  p.tiles = static_cast<int32_t>(problem.batch * image_tiles);
  p.by_image = FastDivide(image_tiles);
  p.chunks = static_cast<int32_t>(ceil_div(p.reduce, kBox));
  p.resident = resident;
  return p;
}

int64_t resident_bytes(const Params& p, Tile tile) {
  return p.resident ? int64_t{p.chunks} * chunk_weights(tile) : 0;
}
int all_laid(Tile tile) { return kConsumers / 32 * laid_bytes(tile); }
int stages_on(const Device& device, const Params& p, Tile tile) {
  const int64_t left = device.smem_optin - kHeader - all_laid(tile) - resident_bytes(p, tile);
  return static_cast<int>(std::min<int64_t>(left / stage_bytes(p, tile), kMostStages)) / kGroups;
}
// With so many stages of each warpgroup, and blocks with the same channels.
void place(Params& p, Tile tile, int stages, int walkers) {
  p.stages = stages;
  p.walkers = walkers;
  p.stages_at = static_cast<int32_t>(kHeader + resident_bytes(p, tile));
  p.laid_at = p.stages_at + kGroups * stages * stage_bytes(p, tile);
  p.shared_bytes = p.laid_at + all_laid(tile);
}

double predict(const Problem& problem, const Device& device, const Params& p, Tile tile) {
  const bool forward = problem.direction == Direction::fwd;
  const double chunk = kChunk + kBox / kSlice * tile.row_blocks * tile.width / 2.0 * kTensorTime;
  const double multiply = p.chunks * chunk, store = kTile + kStored * tile.width * tile.row_blocks;
  // Two groups take tiles in turn: the tensor cores are shared, what a group does otherwise hides behind the other one.
  const double arrive = p.chunks * stage_bytes(p, tile) / kArriving;
  const double each = std::max({multiply, (multiply + store) / kGroups, arrive});
  const double rounds =
      std::ceil(combinations(p) / double(device.sm_count)) * std::ceil(double(p.tiles) / p.walkers);
  const double busy_us = (rounds * each + store) / kClock;
  const double memory_us = tensor_bytes(problem) / (kMemoryRate * device.copy_bytes_per_us);
  const double source = plane_bytes(problem, forward ? problem.in_channels : problem.out_channels),
               read = source * p.row_tiles + (p.resident ? 0
                                                         : double(combinations(p)) * p.tiles *
                                                               p.chunks * chunk_weights(tile));
  const double l2_us =
      (read + tensor_bytes(problem) - source) / (kL2Rate * device.copy_bytes_per_us);
  const double bytes_us = std::max(memory_us, l2_us);
  return kLaunch + std::max(busy_us, bytes_us) + kBeside * std::min(busy_us, bytes_us);
}

std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason) {
  constexpr int kLeastStages = 2;
  std::vector<Candidate<Choice>> found;
  for (int row = 0; row < kTileCount; ++row)
    for (int resident = 1; resident >= 0; --resident) {
      const Tile tile = kTiles[row];
      Params p = shape(problem, row, resident);
      const int stages = stages_on(device, p, tile);
      if (stages < kLeastStages) {
        reason = "no room for " + std::to_string(kLeastStages) + " stages of each warpgroup";
        continue;
      }
      const int64_t walkers = device.sm_count / combinations(p);
      place(p, tile, stages, static_cast<int>(std::clamp<int64_t>(walkers, 1, p.tiles)));
      found.push_back({{row, resident, 1, stages, p.walkers}, predict(problem, device, p, tile)});
    }
  return found;
}

WeightParams weight_shape(const Problem& problem, int row, int split) {
  const int width = kWeightWidths[row];
  const int64_t image_chunks = ceil_div(problem.h.in * problem.w.in, int64_t{kBox});
  WeightParams p{};
  p.piece_floats = static_cast<int32_t>(weight_bytes(problem) / 4);
  p.groups = static_cast<int32_t>(problem.groups);
  p.rows = static_cast<int32_t>(problem.group_in());
  p.columns = static_cast<int32_t>(problem.group_out());
  p.apart = p.rows <= kBox;
  p.row_tiles = static_cast<int32_t>(ceil_div(p.rows, block_rows(p)));
  p.column_tiles = static_cast<int32_t>(ceil_div(p.columns, width));
  p.chunks = static_cast<int32_t>(problem.batch * image_chunks);
  p.by_image = FastDivide(image_chunks);
  p.split = split;
  return p;
}

int weight_stages_on(const Device& device, const WeightParams& p, int width) {
  return std::min((device.smem_optin - kHeader) / stage_bytes(p, width), kMostStages) / 2 * 2;
}

double predict_weight(const Problem& problem, const Device& device, const WeightParams& p,
                      int width) {
  const double chunk = kChunk + kBox / kSlice * width / 2.0 * kTensorTime;
  const double arrive = stage_bytes(p, width) / kArriving;
  const double chunks = std::ceil(double(p.chunks) / p.split);
  const double rounds = std::ceil(double(combinations(p)) * p.split / device.sm_count);
  // Both groups multiply a chunk, or each its own.
  const double each = std::max((p.apart ? 1 : kGroups) * chunk, arrive);
  const double busy_us = rounds * (kTile + kFlush * width + chunks * each) / kClock;
  const double partial = static_cast<double>(partial_bytes(problem, p.split));
  const double memory_us =
      (tensor_bytes(problem) + partial) / (kMemoryRate * device.copy_bytes_per_us);
  const double read = plane_bytes(problem, problem.in_channels) * p.column_tiles +
                      plane_bytes(problem, problem.out_channels) * p.row_tiles;
  const double bytes_us =
      std::max(memory_us, (read + partial) / (kL2Rate * device.copy_bytes_per_us));
  return kLaunch + std::max(busy_us, bytes_us) + kBeside * std::min(busy_us, bytes_us) +
         (p.split > 1 ? kSum + kPartialRate * partial / device.copy_bytes_per_us : 0);
}

// The same for all devices.
std::vector<Candidate<Choice>> weight_candidates(const Problem& problem, const Device& device,
                                                 std::string&) {
  std::vector<Candidate<Choice>> found;
  for (int row = 0; row < kWeightTileCount; ++row) {
    WeightParams p = weight_shape(problem, row, 1);
    p.stages = weight_stages_on(device, p, kWeightWidths[row]);
    for (int split : splits_worth_trying(problem, combinations(p), p.chunks, kBox)) {
      p.split = split;
      found.push_back(
          {{row, 0, split, p.stages, 1}, predict_weight(problem, device, p, kWeightWidths[row])});
    }
  }
  return found;
}

Plan plan_of(const Problem& problem, const Device& device, const Candidate<Choice>& candidate) {
  const auto [row, resident, split, stages, walkers] = candidate.choice;
  const auto number = [](int64_t value) { return std::to_string(value); };
  if (problem.direction == Direction::grad_weight) {
    WeightParams p = weight_shape(problem, row, split);
    p.stages = weight_stages_on(device, p, kWeightWidths[row]);
    Plan plan = weight_sum_plan(problem, device, row, split,
                                predict_weight(problem, device, p, kWeightWidths[row]), kLaunch);
    plan.detail[0] = p.stages;
    plan.note = number(block_rows(p)) + " x " + number(kWeightWidths[row]) + " channels, " +
                number(p.stages) + " stages, split " + number(split) + ", " + number(blocks_of(p)) +
                " blocks";
    return plan;
  }
  const Tile tile = kTiles[row];
  Params p = shape(problem, row, resident);
  place(p, tile, stages, walkers);
  Plan plan;
  plan.row = row;
  plan.predicted_us = candidate.predicted_us;
  plan.detail[0] = stages;
  plan.detail[1] = resident;
  plan.detail[2] = walkers;
  plan.note = number(tile_rows(tile)) + " channels x " + number(tile.width) + " pixels, " +
              number(stages) + " stages each, weights " + (resident ? "resident" : "streamed") +
              ", " + number(blocks_of(p)) + " blocks";
  return plan;
}

std::string refusal(const Problem& problem, const Device& device) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  if (!device.has_wgmma) return "plain is for sm_90a";
  if (element_size(problem.dtype) != 2) return "plain is for fp16 and bf16";
  if (problem.x_layout != Layout::nchw || problem.y_layout != Layout::nchw ||
      problem.w_layout == Layout::strided)
    return "plain is for NCHW";
  for (const Axis& axis : {problem.h, problem.w}) {
    if (axis.kernel != 1 || axis.stride != 1)
      return "plain is for kernels of one tap and stride 1, not " + number(axis.kernel) + " and " +
             number(axis.stride);
    if (axis.near_pad != 0 || axis.out != axis.in)
      return "planes of " + number(axis.in) + " and " + number(axis.out) + " are not the same";
  }
  if (problem.h.in * problem.w.in % 8 != 0)
    return "planes of " + number(problem.h.in * problem.w.in) + " pixels are no whole vectors";
  if (problem.direction != Direction::grad_weight && problem.group_out() % 8 != 0)
    return "rows of " + number(problem.group_out()) + " weights are no whole vectors";
  if (problem.group_out() % 2 != 0)
    return number(problem.group_out()) + " output channels of a group are no pairs";
  if (problem.wide_index) return "a tensor has more than 2^31 elements";
  return {};
}

}  // namespace

int64_t blocks_of(const Params& p) { return combinations(p) * p.walkers; }
int64_t blocks_of(const WeightParams& p) { return combinations(p) * p.split; }
int shared_bytes(const WeightParams& p, int width) {
  return kHeader + p.stages * stage_bytes(p, width);
}

std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason) {
  const auto describe = described_on(device, plan_of);
  if (problem.direction == Direction::grad_weight)
    return all_plans(problem, device, reason, refusal, on_reference(weight_candidates), describe);
  return all_plans(problem, device, reason, refusal, candidates, describe);
}

Decision plan(const Problem& problem, const Device& device) {
  const auto describe = described_on(device, plan_of);
  if (problem.direction == Direction::grad_weight)
    return best_plan(problem, device, refusal, on_reference(weight_candidates), describe);
  return best_plan(problem, device, refusal, candidates, describe);
}

Params params_of(const Problem& problem, const Plan& plan, const Args& args) {
  const bool forward = problem.direction == Direction::fwd;
  Params p = shape(problem, plan.row, plan.detail[1]);
  place(p, kTiles[plan.row], plan.detail[0], plan.detail[2]);
  p.destination = forward ? args.y.data : args.x.data;
  p.bias = forward && problem.has_bias ? args.bias : nullptr;
  return p;
}

WeightParams weight_params_of(const Problem& problem, const Plan& plan, const Args& args) {
  WeightParams p = weight_shape(problem, plan.row, plan.split);
  p.stages = plan.detail[0];
  p.weight = args.w.data;
  p.partials = p.split > 1 ? static_cast<float*>(args.workspace) : nullptr;
  return p;
}

// Planes of all images are one axis, and so are groups of weights.
Maps maps_of(const Problem& problem, const Args& args) {
  const int64_t pixels = problem.h.in * problem.w.in, planes = problem.batch * problem.groups;
  const auto boxes = [](const void* base, int64_t inner, int64_t outer, int64_t matrices) {
    const int64_t row = 2 * inner;
    return encode({base,
                   2,
                   4,
                   {inner, outer, matrices, 1},
                   {2, row, row * outer, row * outer * matrices},
                   {kBox, kBox, 1, 1},
                   {1, 1, 1, 1}});
  };
  const auto x = [&] { return boxes(args.x.data, pixels, problem.group_in(), planes); };
  const auto y = [&] { return boxes(args.y.data, pixels, problem.group_out(), planes); };
  if (problem.direction == Direction::grad_weight) return {x(), y()};
  const CUtensorMap weights =
      boxes(args.w.data, problem.group_out(), problem.group_in(), problem.groups);
  return {weights, problem.direction == Direction::fwd ? x() : y()};
}

}  // namespace convt2d::cuda::plain
