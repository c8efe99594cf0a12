#include "cuda/reed/reed_plan.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "core/phases.h"
#include "cuda/cuda_families.h"
#include "cuda/gather_params.h"
#include "cuda/reed/reed_broad_plan.h"
#include "cuda/reed/reed_held_plan.h"
#include "cuda/reed/reed_lapped_plan.h"
#include "cuda/strict_sums.h"

namespace convt2d::cuda::reed {
namespace {

// Counted; what is dated was measured.
constexpr double kClock = 1700;      // cycles a microsecond
constexpr double kLaunch = 5;        // us
constexpr double kBlock = 4500;      // cycles of a block beside its chunks
constexpr double kTensorTime = 1.2;  // of what the rates of Device say
constexpr double kRound = 2;         // instructions of a warp: 32 words rounded
constexpr double kSplit = 6;         // or split
constexpr double kCopy = 4;          // 32 copies of weights,
constexpr double kVector = 16;       // of 16 bytes of x,
constexpr double kWord = 5;          // of words
constexpr double kNumber = 7;        // or single numbers, which go through registers
constexpr double kAround = 120;      // and what a chunk takes beside them
constexpr double kStore = 50;        // 32 runs of y
constexpr double kL2Bytes = 30;      // a cycle
constexpr double kRest = 0.3;        // of what is less busy that is not hidden
constexpr double kChunkTime = 1.25;  // a chunk over what is counted,
constexpr double kNumberTime = 1.5;  // and where x comes by numbers
constexpr double kAlone = 1.3;       // eight warps that have a multiprocessor to themselves
constexpr double kMemoryRate = 0.8;  // of the copy rate
constexpr double kBeside = 0.3;      // of the lesser of work and bytes
constexpr double kOver = 0.85;       // work over what is counted, by 700 times (2026-11-24)

constexpr int64_t kFar = 30000;  // of what 16 bits hold

bool is_pixels(const Problem& problem) { return problem.y_layout == Layout::nhwc; }

// What steps of j along an axis there are.
int64_t taps_of(const Axis& axis) { return ceil_div(axis.kernel, axis.stride); }
int64_t first_of(const Axis& axis) { return floor_div(axis.near_pad, axis.stride); }
int64_t extent_of(const Axis& axis) {
  return floor_div(axis.near_pad + axis.out - 1, axis.stride) - first_of(axis) + 1;
}

// The largest power of two up to `most` that divides all of these.
int32_t common_run(int64_t most, std::initializer_list<int64_t> numbers) {
  for (int64_t value : numbers)
    while (value % most != 0) most /= 2;
  return static_cast<int32_t>(most);
}

}  // namespace

// Strides of x and y as their layouts have them: both are dense.
void shape(const Problem& problem, const Choice& choice, Params& p) {
  const Tile tile = kTiles[choice.row >= kHeldRow ? kHeldTile : choice.row];
  const Axis h = canonical(problem.h), w = canonical(problem.w);
  const int64_t size = static_cast<int64_t>(element_size(problem.dtype));
  const bool pixels = is_pixels(problem);
  const int64_t in = problem.in_channels, out = problem.out_channels, plane = h.in * w.in;
  const auto number = [](int64_t value) { return static_cast<int32_t>(value); };
  p = {};
  p.inner = pixels ? number(out) : 0;
  const int64_t inner = pixels ? out : 1, channels = pixels ? 1 : problem.group_out();
  p.groups = number(problem.groups);
  p.group_out = number(problem.group_out());
  p.terms = number(problem.group_in());
  p.rows = number(channels * h.stride * w.stride * inner);
  p.taps_h = number(taps_of(h)), p.taps_w = number(taps_of(w));
  p.first_h = number(first_of(h)), p.first_w = number(first_of(w));
  p.positions = number(problem.batch * extent_of(h) * extent_of(w));

  const bool x_pixels = problem.x_layout == Layout::nhwc;
  p.x_image = number(in * plane);
  p.x_channel = number(x_pixels ? 1 : plane);
  p.x_pixel = number(x_pixels ? in : 1);
  p.x_row = number(x_pixels ? w.in * in : w.in);
  p.x_group = p.terms * p.x_channel;
  p.x_h = number(h.in), p.x_w = number(w.in);
  p.way = (x_pixels || plane == 1) && p.terms * size % 16 == 0 && in * size % 16 == 0 ? kVectors
          : size == 4                                                                 ? kWords
                                                                                      : kNumbers;

  p.unit = number(w.stride * inner);
  p.pad_w = number(w.near_pad * inner);
  p.kernel_w = number(w.kernel * inner);
  p.y_w = number(w.out * inner);
  p.y_h = number(h.out);
  p.y_row = p.y_w;
  p.y_plane = number(h.out * w.out * inner);
  p.y_image = number(h.out * w.out * out);
  p.y_group = number(h.out * w.out * problem.group_out());
  p.stride_h = number(h.stride), p.pad_h = number(h.near_pad), p.kernel_h = number(h.kernel);

  p.w_channel = number(problem.group_out() * h.kernel * w.kernel);
  p.w_group = number(problem.group_in() * int64_t{p.w_channel});
  p.joined = w.kernel == w.stride;
  const bool all = p.joined && h.kernel == h.stride;
  p.chunks = number(int64_t{p.taps_h} * p.taps_w * ceil_div(p.terms, chunk_of(number(size))));
  p.run = all ? p.rows : p.joined ? number(h.stride) * p.unit : p.unit;
  p.runs = p.joined ? 1 : p.stride_h;
  p.run_h = p.joined ? 1 : p.kernel_h;
  p.run_w = all ? p.rows : p.joined ? number(h.kernel) * p.kernel_w : p.kernel_w;
  p.run_taps = number(h.kernel) * p.kernel_w;

  // Rows of y are in the order of w and of y as a whole.
  if (!pixels && all && p.taps_h * p.taps_w == 1 && plane == 1 && h.out == h.kernel &&
      w.out == w.kernel && h.near_pad == 0 && w.near_pad == 0) {
    p.flat = p.run_taps;
    p.unit = p.kernel_w = p.run_taps = p.y_w = p.y_row = p.rows;
    p.stride_h = p.kernel_h = p.y_h = 1;
  }

  // Whole units, unless that leaves too much of a tile without use.
  const int whole = p.unit <= tile.rows ? tile.rows / p.unit * p.unit : 0;
  p.used = whole * 8 >= tile.rows * 7 ? whole : tile.rows;
  p.w_piece = common_run(16 / size, {p.run, p.run_w, p.used}) * number(size);
  p.vector = common_run(16 / size, {p.unit, p.pad_w, p.y_w, p.used});
  p.vectors = std::min(p.unit, p.used) / p.vector;
  p.row_blocks = number(ceil_div(p.rows, p.used));
  p.position_blocks = number(ceil_div(p.positions, tile.columns));
  p.stages = choice.stages;
  // So that the runs that eight threads load lie in different banks.
  p.out_pitch =
      tile.rows + (p.vector >= 4 && (p.vectors == 2 || p.vectors == 4) ? 4 * p.vectors : 4);
  p.by_image = FastDivide(extent_of(h) * extent_of(w));
  p.by_width = FastDivide(extent_of(w));
  p.by_unit = FastDivide(p.unit);
  p.by_stride = FastDivide(p.stride_h);
  p.by_run = FastDivide(p.run);
  p.by_runs = FastDivide(p.runs);
  p.by_vectors = FastDivide(p.vectors);
}

namespace {

double predict(const Problem& problem, const Device& device, const Params& p, Tile tile) {
  const int size = static_cast<int>(element_size(problem.dtype)), chunk = chunk_of(size);
  const bool half = size == 2, strict = is_strict(problem);
  const double products = strict ? 3 : 1, warps = threads_of(tile) / 32;
  // Of a chunk, on average, cycles of a multiprocessor: its tensor cores,
  const double steps = std::ceil(p.terms * size / 32.0) / ceil_div(p.terms, chunk);
  const double rate = (half ? device.mma_f16_per_us : device.mma_tf32_per_us) / device.sm_count /
                      kClock / kTensorTime;
  const double mma = double(tile.rows) * tile.columns * steps * 32 / size * products / rate;
  // its four issuers,
  const double m = row_tiles(tile), n = column_tiles(tile), words = 4 * m + 2 * n;
  const double step = m * (half ? 1 : 2) + n / 2 + m * n * products +
                      (half ? 0 : words * (strict ? kSplit : kRound)) + 4;
  const double w_copies = double(tile.rows) * kChunkBytes / p.w_piece / 32;
  const double x_bytes = double(tile.columns) * kChunkBytes;
  const double x_copies = x_bytes / 32 /
                          (p.way == kVectors ? 16 / kVector
                           : p.way == kWords ? 4 / kWord
                                             : 2 / kNumber);
  const double issue = (steps * step * warps + w_copies * kCopy + x_copies + kAround * warps) / 4;
  // shared memory, and what comes to it, of weights in sectors of 32 bytes.
  const double row_bytes = double(tile.rows) * kChunkBytes;
  const double shared = steps * warps * (4 * m + 2 * n) + (row_bytes + x_bytes) / 128 +
                        (p.way == kVectors ? 0 : x_bytes / size / 16);
  const double sectors = p.joined || p.run * size >= 32 ? 1 : 32.0 / (p.run * size);
  const double l2 = (row_bytes * std::min(sectors, 2.0) + x_bytes) / kL2Bytes;
  const double busiest = std::max({mma, issue, shared, l2});
  const double cycles = (p.way == kNumbers ? kNumberTime : kChunkTime) *
                        (busiest + kRest * (mma + issue + shared + l2 - busiest));
  const double stored = double(p.used) * tile.columns / 32 * (kStore / p.vector + 8) / 4;
  const double blocks = double(blocks_of(p));
  const double rounds = std::ceil(blocks / device.sm_count);
  const double alone = (rounds < 2 && threads_of(tile) == 256) ||
                               (threads_of(tile) == 256 && side_by_side(tile, strict) < 2)
                           ? kAlone
                           : 1;
  const double busy_us = (rounds * (p.chunks * cycles * alone + stored) +
                          std::ceil(rounds / side_by_side(tile, is_strict(problem))) * kBlock) /
                         kClock;
  const double memory_us = tensor_bytes(problem) / (kMemoryRate * device.copy_bytes_per_us);
  return kLaunch + std::max(kOver * busy_us, memory_us) + kBeside * std::min(busy_us, memory_us);
}

// Chunks under way: as many as leave room for a second block, where registers do.
int stages_on(const Device& device, const Problem& problem, Tile tile) {
  const int chunk = stage_bytes(tile, static_cast<int>(element_size(problem.dtype)));
  const int room = side_by_side(tile, is_strict(problem)) > 1
                       ? std::min(device.smem_optin, device.smem_per_sm / 2 - 1024)
                       : device.smem_optin;
  return std::clamp((room - table_bytes(tile)) / chunk, 2, kMostStages);
}

std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason) {
  std::vector<Candidate<Choice>> found;
  for (int row = 0; row < tile_count(is_strict(problem)); ++row) {
    const Tile tile = kTiles[row];
    Params p;
    shape(problem, {row, stages_on(device, problem, tile)}, p);
    if (p.w_piece < 4) {
      reason = "runs of " + std::to_string(p.run) + " weights are no whole words";
    } else if (blocks_of(p) > INT32_MAX) {
      reason = "y has too many tiles";
    } else if (shared_bytes(p, tile, static_cast<int>(element_size(problem.dtype))) >
               device.smem_optin) {
      reason = "two chunks do not fit in shared memory";
    } else {
      found.push_back({{row, p.stages}, predict(problem, device, p, tile)});
    }
  }
  add_held(problem, device, found);
  add_broad(problem, device, found);
  add_lapped(problem, device, found);
  return found;
}

Plan plan_of(const Problem& problem, const Candidate<Choice>& candidate) {
  if (candidate.choice.row == kLappedRow) return lapped_plan(problem, candidate);
  if (candidate.choice.row >= kHeldRow) return held_plan(problem, candidate);
  const Tile tile = kTiles[candidate.choice.row];
  Params p;
  shape(problem, candidate.choice, p);
  const auto number = [](int64_t value) { return std::to_string(value); };
  Plan plan;
  plan.row = candidate.choice.row;
  plan.predicted_us = candidate.predicted_us;
  plan.detail[0] = p.stages;
  plan.note = number(p.used) + " of " + number(p.rows) + " rows x " + number(tile.columns) +
              " of " + number(p.positions) + " positions, weights by " + number(p.w_piece) +
              " bytes, x by " +
              (p.way == kVectors ? "vectors"
               : p.way == kWords ? "words"
                                 : "numbers") +
              ", stores of " + number(p.vector) + ", " + number(p.chunks) + " chunks, " +
              number(p.stages) + " stages, " + number(blocks_of(p)) + " blocks";
  return plan;
}

std::string refusal(const Problem& problem, const Device& device) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  if (!device.has_mma_f16 || !device.has_cp_async) return "reed is for sm_80 and up";
  if (problem.direction != Direction::fwd) return "reed is for forward";
  if (problem.dtype == DType::f64) return "reed is for fp16, bf16 and fp32";
  if (problem.x_layout == Layout::strided || problem.y_layout == Layout::strided ||
      problem.w_layout != problem.y_layout)
    return "weights and y do not lie alike";
  if (problem.groups > 1 && (is_pixels(problem) || problem.x_layout == Layout::nhwc))
    return "groups " + number(problem.groups) + " is for NCHW";
  if (problem.wide_index) return "a tensor has more than 2^31 elements";
  for (const Axis& given : {problem.h, problem.w}) {
    const Axis axis = canonical(given);
    if (axis.dilation != 1 && axis.kernel > 1)
      return "taps lie " + number(axis.dilation) + " apart";
    if (axis.stride > kFar || std::abs(axis.near_pad) > kFar || axis.kernel > kFar)
      return "strides of " + number(axis.stride) + " reach too far";
    const int64_t first = first_of(axis), last = first + extent_of(axis) + taps_of(axis);
    if (first < -kFar || last > kFar) return "positions up to " + number(last) + " are too many";
    if (extent_of(axis) * axis.stride > INT32_MAX / 4 / problem.out_channels)
      return "rows of y are too long";
  }
  const Axis h = canonical(problem.h), w = canonical(problem.w);
  if (problem.out_channels * h.stride * w.stride > INT32_MAX / 4) return "phases are too many";
  // Positions beside y as well: 32 bits hold where they are.
  if (problem.batch * problem.out_channels * h.stride * w.stride * (extent_of(h) + 1) *
          (extent_of(w) + 1) >
      INT32_MAX)
    return "positions are too many";
  Problem dense = problem;  // whose sums have no products beside x where x is one pixel
  dense.h = h, dense.w = w;
  return sums_too_short(dense, kLeastSplitTerms);
}

}  // namespace

int shared_bytes(const Params& params, Tile tile, int element_bytes) {
  return table_bytes(tile) + std::max(params.stages * stage_bytes(tile, element_bytes),
                                      tile.columns * params.out_pitch * 4);
}

int64_t blocks_of(const Params& params) {
  return int64_t{params.groups} * params.row_blocks * params.position_blocks;
}

std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason) {
  return all_plans(problem, device, reason, refusal, candidates, plan_of);
}

Decision plan(const Problem& problem, const Device& device) {
  return best_plan(problem, device, refusal, candidates, plan_of);
}

void point_at(const Problem& problem, const Args& args, Params& p) {
  p.x = args.x.data;
  p.y = args.y.data;
  p.w = args.w.data;
  p.bias = problem.has_bias ? args.bias : nullptr;
}

Params params_of(const Problem& problem, const Plan& plan, const Args& args) {
  Params p;
  shape(problem, {plan.row, plan.detail[0]}, p);
  point_at(problem, args, p);
  return p;
}

}  // namespace convt2d::cuda::reed
