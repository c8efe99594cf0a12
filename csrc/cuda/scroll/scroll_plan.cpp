#include "cuda/scroll/scroll_plan.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "core/phases.h"
#include "cuda/gather_params.h"
#include "cuda/scroll/scroll_planes_plan.h"
#include "cuda/tensor_map.h"

namespace convt2d::cuda::scroll {
namespace {

// Cycles where nothing else is said; fitted to 151 plans of 21 layers on the H200 (2026-11-27), fp16 and TF32, forward and
// grad_input: within 20 %, but for plans of 32 of kernelbench_2_2's channels, which take half as long again.
constexpr double kClock = 1700;    // cycles a microsecond
constexpr double kLaunch = 8.2;    // us: launch, the first rows, last stores
constexpr double kWeights = 1800;  // of 16 bytes of weights that each thread brings, eight times,
constexpr double kDeepWeights = 4700;  // and where they are of channels of x
constexpr double kTensorTime = 0.862;  // over an instruction's least at this clock
constexpr double kSharedBytes = 115;   // a cycle
constexpr double kProduct =
    75;  // of a warpgroup alone, beside the instructions of a kernel column's chunk,
constexpr double kLine = 880;  // and of a line, until its rows of y are on their way
constexpr double kColumn = 0.8;
// What a line's instructions take of a scheduler: whatever it is, of a column, of 16 bytes of a thread that are stored.
constexpr double kLineIssue = 190, kColumnIssue = 2.24, kStoreIssue = 9;
constexpr double kLesser = 0.15;       // of what neither of these hides
constexpr double kEngineRow = 4;       // of the copy engine, a pixel
constexpr double kMemoryRate = 0.855;  // of the copy rate
constexpr double kAgain = 0.4;         // of x for the second phase of columns,
constexpr double kNeighbours = 0.52;   // and of what strips have in common
constexpr double kScattered = 1.28;    // times y, whose phases of columns come apart,
constexpr double kInPieces = 1.09;     // and by pieces shorter than a line
constexpr double kBeside = 0.134;      // of the lesser of work and bytes

struct Choice {
  int row, groups, eights, stages;
  int walkers[kMostPhases];
};

Taps taps_of(const Axis& axis, int phase) {
  const AxisWalk walk = forward_walk(axis, phase);
  if (walk.taps == 0) return {};
  const int64_t before = walk.taps - 1;  // offsets fall
  const auto number = [](int64_t value) { return static_cast<int32_t>(value); };
  return {number(walk.taps), number(walk.first_offset + before * walk.offset_step),
          number(-walk.offset_step), number(walk.first_tap + before * walk.tap_step),
          number(-walk.tap_step)};
}

// Everything that follows from the problem and the choice, pointers aside.
void shape(const Problem& problem, const Choice& choice, Params& p) {
  const Tile tile = kTiles[choice.row];
  const auto number = [](int64_t value) { return static_cast<int32_t>(value); };
  p = {};
  set_problem(problem, tile, p);
  p.warpgroups = choice.groups;
  p.eights = choice.eights;
  int32_t most = 0;
  for (int phase = 0; phase < p.stride_w; ++phase) {
    most = std::max(most, (p.taps[phase].count - 1) * p.taps[phase].shift);
    p.walkers[phase] = choice.walkers[phase];
  }
  const int32_t positions = p.eights ? kEight : kPositions, images = p.eights ? kEight : 1;
  p.pixels = positions + most;
  const int32_t bytes = p.reduce * p.number_bytes;
  // Long rows where they hold no more that is nothing.
  p.line = bytes <= 32                                                      ? 32
           : bytes <= 64 || (bytes > 128 && round_up(bytes, 64) % 128 != 0) ? 64
                                                                            : 128;
  set_chunks(p);
  p.slices = p.chunks > 1 ? p.line / kSliceBytes : number(ceil_div(bytes, kSliceBytes));
  p.strips_w = number(ceil_div(ceil_div(p.y_w, p.stride_w), positions));
  p.lines = p.strips_w * number(ceil_div(p.batch, images)) * p.steps;
  p.by_strips = FastDivide(p.strips_w);
  p.chunk_bytes = number(round_up(images * p.pixels * p.line, 1024));
  p.stages = choice.stages;
  p.stage_bytes = p.chunks * p.chunk_bytes;
  int32_t columns = 0;
  for (const Taps& taps : p.taps) columns = std::max(columns, taps.count);
  SharedPlaces places{kHeader};
  p.weights_at = places.take(int64_t{columns} * p.chunks * columns_of(tile) * p.line, 1024);
  p.stages_at = places.take(int64_t{p.warpgroups} * p.stages * p.stage_bytes, 1024);
  p.shared_bytes = number(places.end);
}

// Cycles of a multiprocessor for a line of each of its warpgroups, with so many kernel columns.
double line_cycles(const Params& p, Tile tile, int taps) {
  const double width = columns_of(tile), products = double(taps) * p.chunks;
  const double instructions =
      products * p.slices *
      std::max(kTensorTime * width / 2, (kPositions + width) * kSliceBytes / kSharedBytes);
  const double stores = tile.step * 2 * std::ceil(tile.width * p.number_bytes / 64.0);
  const double together = p.warpgroups * instructions,
               alone = kLine + products * kProduct + instructions + kColumn * width,
               issue = p.warpgroups * (kLineIssue + kColumnIssue * width + kStoreIssue * stores);
  const double most = std::max({together, alone, issue});
  const double engine = double(p.chunks) * (p.eights ? kEight : 1) * p.pixels * kEngineRow;
  return std::max(most + kLesser * (together + alone + issue - most), p.warpgroups * engine);
}

// Lines that a warpgroup multiplies, of one phase.
double lines_of(const Params& p, Tile tile, int phase) {
  const double run = std::ceil(double(p.lines) / (double(p.walkers[phase]) * p.warpgroups));
  return run + reach_of(tile) * (1 + std::floor((run - 1) / p.steps));
}

double predict(const Problem& problem, const Device& device, const Params& p, Tile tile,
               bool deep) {
  double busy = 0;
  for (int phase = 0; phase < p.stride_w; ++phase) {
    const Taps& taps = p.taps[phase];
    const double weights =
        double(taps.count) * p.vectors * columns_of(tile) / 8 / (128 * p.warpgroups);
    busy = std::max(busy, weights * (deep ? kDeepWeights : kWeights) +
                              lines_of(p, tile, phase) * line_cycles(p, tile, taps.count));
  }
  const double pixels = double(p.batch) * p.number_bytes,
               x_bytes = pixels * p.reduce * p.x_h * p.x_w,
               y_bytes = pixels * p.columns * p.y_h * p.y_w;
  const double beside = double(p.pixels) / (p.eights ? kEight : kPositions) - 1;
  const bool pieces = p.eights && tile.width * p.number_bytes < 128;
  const double bytes = tensor_bytes(problem) +
                       x_bytes * (kAgain * (p.stride_w - 1) + kNeighbours * beside) +
                       y_bytes * ((p.stride_w > 1 ? kScattered : 1) * (pieces ? kInPieces : 1) - 1);
  const double memory_us = bytes / (kMemoryRate * device.copy_bytes_per_us),
               busy_us = busy / kClock;
  return kLaunch + std::max(busy_us, memory_us) + kBeside * std::min(busy_us, memory_us);
}

// Blocks by what phases cost.
void share_blocks(const Device& device, const Params& p, Tile tile, Choice& choice) {
  const int places = std::max(1, device.sm_count / p.column_tiles);
  if (p.stride_w == 1) {
    choice.walkers[0] =
        std::clamp<int>(places, 1, static_cast<int>(ceil_div(p.lines, p.warpgroups)));
    return;
  }
  const double first = line_cycles(p, tile, p.taps[0].count),
               second = line_cycles(p, tile, p.taps[1].count);
  choice.walkers[0] = std::clamp(static_cast<int>(std::lround(places * first / (first + second))),
                                 1, std::max(1, places - 1));
  choice.walkers[1] = std::max(1, places - choice.walkers[0]);
}

std::string refusal(const Problem& given, const Device& device) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  if (std::string reason = common_refusal(given, device); !reason.empty()) return reason;
  const Problem problem = as_forward(given);
  const Axis &h = problem.h, &w = problem.w;
  if (problem.x_layout != Layout::nhwc || problem.y_layout != Layout::nhwc)
    return "scroll takes x and y of one layout, NCHW or NHWC";
  const int64_t vector = 16 / element_size(problem.dtype);
  if (problem.in_channels % vector != 0 || problem.out_channels % vector != 0)
    return number(problem.in_channels) + " or " + number(problem.out_channels) +
           " channels are not whole vectors of " + number(vector);
  if (std::none_of(std::begin(kTiles), std::end(kTiles),
                   [&](const Tile& tile) { return serves(tile, problem, 0); }))
    return "no tile has " + number(h.kernel) + " kernel rows and stride " + number(h.stride);
  if (kPositions + (w.kernel - 1) * w.dilation > kMostSpan)
    return "kernel rows reach over " + number((w.kernel - 1) * w.dilation) + " pixels";
  return {};
}

std::vector<Candidate<Choice>> candidates(const Problem& given, const Device& device,
                                          std::string& reason) {
  const Problem problem = as_forward(given);
  constexpr int kLeastStages = 2, kLeastGroups = 2;
  std::vector<Candidate<Choice>> found;
  for (int row = 0; row < kTileCount; ++row) {
    const Tile tile = kTiles[row];
    if (!serves(tile, problem, 0)) continue;
    for (int groups = tile.groups; groups >= kLeastGroups; --groups)
      for (const int eights : {0, 1}) {
        Choice choice = {row, groups, eights, 0, {1, 1}};
        Params p;
        shape(problem, choice, p);
        const int stages = (device.smem_optin - p.stages_at) / (groups * p.stage_bytes);
        if (stages < kLeastStages) {
          reason = "weights and two rows of " + std::to_string(groups) +
                   " warpgroups do not fit in " + std::to_string(device.smem_optin) +
                   " bytes of shared memory";
          continue;
        }
        choice.stages = std::min(stages, kMostStages);
        share_blocks(device, p, tile, choice);
        shape(problem, choice, p);
        found.push_back(
            {choice, predict(problem, device, p, tile, given.direction == Direction::grad_input)});
      }
  }
  return found;
}

Plan plan_of(const Problem& given, const Candidate<Choice>& candidate) {
  const Problem problem = as_forward(given);
  const Choice& c = candidate.choice;
  const Tile tile = kTiles[c.row];
  Params p;
  shape(problem, c, p);
  Plan plan;
  plan.row = c.row;
  plan.predicted_us = candidate.predicted_us;
  const int detail[] = {c.eights, c.stages, c.walkers[0], c.walkers[1], c.groups};
  std::copy(std::begin(detail), std::end(detail), plan.detail);
  plan.note = std::to_string(c.groups) + " strips of " +
              (c.eights ? "8 positions of 8 images" : "64 positions") + " x " +
              std::to_string(tile.rows) + " rows x " + std::to_string(tile.width) + " channels, " +
              std::to_string(c.stages) + " stages, " + std::to_string(blocks_of(p)) +
              " blocks of " + std::to_string(p.shared_bytes) + " bytes";
  return plan;
}

Choice choice_of(const Plan& plan) {
  const int32_t* d = plan.detail;
  return {plan.row, d[4], d[0], d[1], {d[2], d[3]}};
}

}  // namespace

// grad_input of stride 1 is a forward from the output's side, its kernel turned around.
Problem as_forward(const Problem& given) {
  if (given.direction == Direction::fwd) return given;
  const auto seen_from_y = [](const Axis& a) {
    return Axis{a.out, a.in, a.kernel, 1, (a.kernel - 1) * a.dilation - a.near_pad, a.dilation};
  };
  Problem p = given;
  p.direction = Direction::fwd;
  std::swap(p.in_channels, p.out_channels);
  std::swap(p.x_layout, p.y_layout);
  p.h = seen_from_y(given.h);
  p.w = seen_from_y(given.w);
  p.has_bias = 0;
  return p;
}

bool serves(const Tile& tile, const Problem& problem, int64_t phases) {
  return tile.phases == phases && tile.rows == problem.h.kernel && tile.step == problem.h.stride;
}

void set_problem(const Problem& problem, Tile tile, Params& p) {
  const Axis &h = problem.h, &w = problem.w;
  const auto number = [](int64_t value) { return static_cast<int32_t>(value); };
  set_extents(problem, p);
  set_geometry(problem, p);
  p.x_h = number(h.in);
  p.x_w = number(w.in);
  p.dilation_w = number(w.dilation);
  p.number_bytes = number(element_size(problem.dtype));
  p.column_tiles = number(ceil_div(p.columns, tile.width));
  for (int phase = 0; phase < p.stride_w; ++phase) p.taps[phase] = taps_of(w, phase);
  p.first_row = number(floor_div(h.near_pad, h.stride));
  p.steps = number(floor_div(h.out - 1 + h.near_pad, h.stride) + 1 - p.first_row);
  p.by_steps = FastDivide(p.steps);
}

void set_chunks(Params& p) {
  p.chunks = static_cast<int32_t>(ceil_div(p.reduce * p.number_bytes, p.line));
  p.vectors = p.chunks * p.line / 16;
  while (16 << p.vector_bits < p.line) ++p.vector_bits;
  p.by_vectors = FastDivide(p.vectors);
}

void set_operands(const Problem& problem, const Args& args, Params& p) {
  set_tensors(problem, args, p);
  if (problem.direction == Direction::grad_input) {
    p.weight = static_cast<const char*>(p.weight) +
               p.number_bytes * ((p.kernel_h - 1) * p.weight_h + (p.kernel_w - 1) * p.weight_w);
    p.weight_h = -p.weight_h;
    p.weight_w = -p.weight_w;
  }
  const auto whole = [&](int32_t stride) { return stride * p.number_bytes % 16 == 0; };
  const bool taps = whole(p.weight_h) && whole(p.weight_w) && aligned(p.weight, 16);
  p.weight_mode = taps && p.weight_column == 1 && whole(p.weight_reduce)   ? kColumnVectors
                  : taps && p.weight_reduce == 1 && whole(p.weight_column) ? kDepthVectors
                                                                           : kAnyStrides;
}

std::string common_refusal(const Problem& given, const Device& device) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  if (!device.has_wgmma) return "no wgmma (sm_90a)";
  if (given.direction == Direction::grad_weight) return "scroll is for forward and grad_input";
  if (given.direction == Direction::grad_input && (given.h.stride != 1 || given.w.stride != 1))
    return "scroll takes grad_input of stride 1, not " + number(given.h.stride) + " x " +
           number(given.w.stride);
  const Problem problem = as_forward(given);
  const Axis &h = problem.h, &w = problem.w;
  if (problem.dtype == DType::f64 ||
      (problem.dtype == DType::f32 && problem.precision != Precision::tf32))
    return "scroll is for fp16, bf16 and TF32";
  if (problem.groups > 1) return "scroll takes one group, not " + number(problem.groups);
  if (h.dilation != 1) return "scroll takes no dilation of rows";
  if (w.stride > kMostPhases)
    return "a stride of " + number(w.stride) + " is more than " + number(kMostPhases);
  if (problem.wide_index) return "a tensor has more than 2^31 elements";
  return {};
}

int64_t blocks_of(const Params& p) {
  int64_t walkers = 0;
  for (int phase = 0; phase < p.stride_w; ++phase) walkers += p.walkers[phase];
  return walkers * p.column_tiles;
}

std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason) {
  return problem.x_layout == Layout::nchw
             ? plane_plans(problem, device, reason)
             : all_plans(problem, device, reason, refusal, candidates, plan_of);
}

Decision plan(const Problem& problem, const Device& device) {
  return problem.x_layout == Layout::nchw
             ? plane_plan(problem, device)
             : best_plan(problem, device, refusal, candidates, plan_of);
}

Params params_of(const Problem& problem, const Plan& plan, const Args& args) {
  Params p;
  shape(as_forward(problem), choice_of(plan), p);
  set_operands(problem, args, p);
  return p;
}

CUtensorMap map_of(const Params& p) {
  const int64_t pixel = int64_t{p.number_bytes} * p.reduce, row = pixel * p.x_w;
  return encode({p.source,
                 p.number_bytes,
                 4,
                 {p.reduce, p.x_w, p.x_h, p.batch},
                 {p.number_bytes, pixel, row, row * p.x_h},
                 {p.line / p.number_bytes, p.pixels, 1, p.eights ? kEight : 1},
                 {1, 1, 1, 1}});
}

}  // namespace convt2d::cuda::scroll
