#include "cuda/tuft/tuft_plan.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/phases.h"
#include "cuda/gather_params.h"
#include "cuda/tensor_map.h"

namespace convt2d::cuda::tuft {
namespace {

// By 48 times of plans for eight layers in fp16 and TF32 on an H200 (2026-11-30): 1.07 times off in the mean. Found together.
constexpr double kClock = 1700;  // cycles a microsecond
constexpr double kLaunch = 4;    // us
// Cycles until weights are turned, beside their copying; the last stores.
constexpr double kBlock = 4450;
constexpr double kCopied = 29;    // bytes a cycle of weights
constexpr double kTensor = 0.74;  // of the tensor core's rate: shared memory is as busy
// Cycles from one product of a team to the next: fetched, multiplied.
constexpr double kSlice = 120;
constexpr double kStored = 16;  // bytes a cycle that a multiprocessor stores
constexpr double kEight =
    52;  // cycles of a team that stores eight columns, whether they exist or not
constexpr double kL2Bytes = 23;  // a cycle, of x
// Cycles of the copy engine: a row of a box, and of rows that start between 32 bytes, as every second one of odd planes does; a box.
constexpr double kCopiedRow = 3.6, kBetween = 1.95, kBox = 48;
constexpr double kLatency = 670;   // cycles until a stage is filled again
constexpr double kMemoryRate = 1;  // of the copy rate
constexpr double kBeside = 0.26;   // of the lesser of work and bytes
constexpr int kLeastStages = 2;

struct Choice {
  int row;  // of kTiles
  int stages, walkers;
};

int number(int64_t value) { return static_cast<int>(value); }
int size_of(const Problem& problem) { return number(element_size(problem.dtype)); }

// As many places as have shifts that a line has room for.
int box_places(Params p, int bytes) {
  const auto fits = [&](int count) {
    p.box_places = count;
    for (int place = 0; place < places(bytes); ++place)
      if (shift(p, place, bytes) > most_shift(bytes)) return false;
    return true;
  };
  int count = places(bytes);
  while (!fits(count)) count /= 2;
  return count;
}

// All but pointers.
Params shape(const Problem& problem, const Choice& choice) {
  const Axis &h = problem.h, &w = problem.w;
  const Tile tile = kTiles[choice.row];
  const int bytes = size_of(problem);
  Params p{};
  set_extents(problem, p);
  p.kernel_h = number(h.kernel), p.kernel_w = number(w.kernel);
  p.x_w = number(w.in), p.plane = number(h.in * w.in);
  p.plane_rest = p.plane % places(bytes);
  p.box_places = box_places(p, bytes);
  p.chunks = number(ceil_div(p.reduce, kSets * places(bytes)));
  p.stages = choice.stages;
  p.lines = number(ceil_div(p.plane, kPixels));
  p.column_blocks = number(ceil_div(int64_t{p.columns} * taps(p), tile.width));
  p.walkers = choice.walkers;
  p.by_lines = FastDivide(p.lines), p.by_row = FastDivide(p.x_w);
  SharedPlaces places{kHeader};
  p.weights_at = places.take(weight_bytes(p, tile), 1024);
  p.stages_at = places.take(int64_t{tile.teams} * p.stages * stage_bytes(bytes), 128);
  p.shared_bytes = number(places.end);
  return p;
}

double predict(const Problem& problem, const Device& device, const Params& p, Tile tile) {
  const int bytes = size_of(problem);
  const double slices = double(p.chunks) * kSlices, product = tile.width / 2 / kTensor;
  const double boxes = places(bytes) / p.box_places, rows = kSets * places(bytes);
  const double engine = boxes * kBox + rows * kCopiedRow * (p.plane % 2 ? kBetween : 1);
  // Of a line: what teams share, and what each does alone.
  const double mma = slices * product,
               x = p.chunks * std::max(stage_bytes(bytes) / kL2Bytes, engine),
               columns = std::min<double>(tile.width, double(p.columns) * taps(p)),
               stored = kPixels * columns * bytes / kStored;
  const double cycles =
      std::max({tile.teams * mma, tile.teams * x, tile.teams * stored,
                slices * std::max(product, kSlice) + std::max(stored, tile.width / 8 * kEight),
                (tile.teams * mma + p.chunks * kLatency) / p.stages});
  const double weights = weight_bytes(p, tile) / kCopied;
  const double lines = std::ceil(double(p.batch) * p.lines / (p.walkers * tile.teams));
  const double waves = std::ceil(double(blocks_of(p)) / device.sm_count);
  const double busy_us = waves * (kBlock + weights + lines * cycles) / kClock;
  const double memory_us = tensor_bytes(problem) / (kMemoryRate * device.copy_bytes_per_us);
  return kLaunch + std::max(busy_us, memory_us) + kBeside * std::min(busy_us, memory_us);
}

std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason) {
  std::vector<Candidate<Choice>> found;
  const int bytes = size_of(problem);
  for (int row = 0; row < kTileCount; ++row) {
    const Tile tile = kTiles[row];
    if (!has_tile(row, bytes) || tile.odd != (bytes == 2 && problem.h.in * problem.w.in % 2 != 0))
      continue;
    Choice choice{row, 0, 1};
    const Params bare = shape(problem, choice);
    choice.stages = std::min(
        (device.smem_optin - bare.shared_bytes) / (tile.teams * stage_bytes(bytes)), kMostStages);
    if (choice.stages < kLeastStages) {
      reason = "weights of " + std::to_string(bare.reduce) + " channels need " +
               std::to_string(weight_bytes(bare, tile)) + " bytes of shared memory";
      continue;
    }
    // As many blocks as fill the device, or as few as have no more lines each.
    const int64_t same = int64_t{bare.groups} * bare.column_blocks,
                  lines = ceil_div(int64_t{bare.batch} * bare.lines, tile.teams);
    for (const int waves : {1, 2}) {
      const int64_t most = std::clamp<int64_t>(device.sm_count * waves / same, 1, lines);
      choice.walkers = number(ceil_div(lines, ceil_div(lines, most)));
      const Params p = shape(problem, choice);
      found.push_back({choice, predict(problem, device, p, tile)});
    }
  }
  return found;
}

Plan plan_of(const Problem& problem, const Candidate<Choice>& candidate) {
  const Choice& c = candidate.choice;
  const Tile tile = kTiles[c.row];
  const Params p = shape(problem, c);
  Plan plan;
  plan.row = c.row;
  plan.predicted_us = candidate.predicted_us;
  plan.detail[0] = c.stages, plan.detail[1] = c.walkers;
  plan.note = std::to_string(tile.teams) + " x " + std::to_string(kPixels) + " pixels x " +
              std::to_string(tile.width) + " columns, " + std::to_string(p.chunks) + " chunks in " +
              std::to_string(places(size_of(problem)) / p.box_places) + " boxes, " +
              std::to_string(c.stages) + " stages, " + std::to_string(blocks_of(p)) + " blocks";
  return plan;
}

Choice choice_of(const Plan& plan) { return {plan.row, plan.detail[0], plan.detail[1]}; }

std::string refusal(const Problem& problem, const Device& device) {
  const auto text = [](int64_t value) { return std::to_string(value); };
  const Axis &h = problem.h, &w = problem.w;
  const int64_t bytes = size_of(problem), set = places(size_of(problem)), plane = h.in * w.in,
                columns = problem.group_out() * h.kernel * w.kernel;
  const auto exact = [](const Axis& axis) {
    return axis.kernel == axis.stride && axis.near_pad == 0 && axis.dilation == 1 &&
           axis.out == axis.in * axis.stride;
  };
  if (!device.has_wgmma) return "tuft is for sm_90a";
  if (problem.direction != Direction::fwd) return "tuft is for forward";
  if (bytes != 2 && !(problem.dtype == DType::f32 && problem.precision == Precision::tf32))
    return "tuft is for fp16, bf16 and TF32";
  if (problem.x_layout != Layout::nchw || problem.y_layout != Layout::nchw ||
      problem.w_layout != Layout::nchw)
    return "tuft is for NCHW";
  if (!exact(h) || !exact(w))
    return "tuft is for kernels that are their stride, without padding, not " + text(h.kernel) +
           " x " + text(w.kernel) + " with stride " + text(h.stride) + ", " + text(w.stride);
  if (w.kernel != 2 && w.kernel != 4 && w.kernel != 8)
    return "tuft is for kernels of 2, 4 or 8 columns, not " + text(w.kernel);
  if (problem.group_in() % set != 0)
    return "a group's " + text(problem.group_in()) + " channels are no whole sets of " + text(set);
  if (plane < set) return "planes of " + text(plane) + " pixels are smaller than a vector";
  if (columns * bytes % 16 != 0)
    return "a channel's " + text(columns) + " weights are no whole 16 bytes";
  if (problem.wide_index) return "a tensor has more than 2^31 elements";
  return {};
}

}  // namespace

std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason) {
  return all_plans(problem, device, reason, refusal, candidates, plan_of);
}

Decision plan(const Problem& problem, const Device& device) {
  return best_plan(problem, device, refusal, candidates, plan_of);
}

Params params_of(const Problem& problem, const Plan& plan, const Args& args) {
  Params p = shape(problem, choice_of(plan));
  p.y = args.y.data;
  p.bias = problem.has_bias ? args.bias : nullptr;
  return p;
}

// Axes of x: number, set, place, plane. To the copy engine a place begins whole 16 bytes behind the one before. Of w: column, place of
// two, set, pair of places, group.
Maps maps_of(const Problem& problem, const Params& p, const Args& args) {
  const int32_t bytes = size_of(problem), set = places(bytes);
  const int64_t plane = int64_t{p.plane} * bytes, apart = plane - int64_t{p.plane_rest} * bytes,
                row = int64_t{p.columns} * taps(p) * bytes;
  const int32_t sets = p.reduce / set;
  return {encode({args.x.data,
                  bytes,
                  4,
                  {(set * plane - (set - 1) * apart) / bytes, sets, set, problem.batch * p.groups},
                  {bytes, set * plane, apart, p.reduce * plane},
                  {line_bytes(bytes) / bytes, kSets, p.box_places, 1},
                  {1, 1, 1, 1},
                  false}),
          encode({args.w.data,
                  bytes,
                  5,
                  {row / bytes, 2, sets, set / 2, p.groups},
                  {bytes, row, set * row, 2 * row, p.reduce * row},
                  {kColumnLine / bytes, 2, kSets, set / 2 / kSlices, 1},
                  {1, 1, 1, 1, 1}})};
}

int64_t blocks_of(const Params& p) { return int64_t{p.groups} * p.column_blocks * p.walkers; }

}  // namespace convt2d::cuda::tuft
