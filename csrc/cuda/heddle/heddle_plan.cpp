#include "cuda/heddle/heddle_plan.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "core/phases.h"
#include "cuda/cuda_families.h"
#include "cuda/gather_params.h"
#include "cuda/strict_sums.h"
#include "cuda/weight_cost.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda::heddle {
namespace {

// Fitted to 1400 plans, 2026-11-24, an H200: measured / predicted is 0.97 to 1.06 where it is near other families, and the
// choice is 1.001 of the best. As counted, 1.1 to 2: above all a step took longer.
constexpr double kClock = 1700;       // cycles a microsecond
constexpr double kLaunch = 5.5;       // us
constexpr double kBlock = 14500;      // cycles of a block beside its steps,
constexpr double kStored = 20;        // a sum of each thread, on its way out,
constexpr double kFirst = 0.7;        // of what a strip's first lines take,
constexpr double kStep = 1250;        // a step: the barrier, and what follows it
constexpr double kTensorTime = 1.46;  // of what the rates of Device say
constexpr double kIssued = 0.7;       // of a scheduler, an instruction of the multiplying warps,
constexpr double kMoved = 1.1;        // one that moves words of dY,
constexpr double kMade = 0.8;         // one that rounds or splits
constexpr double kCopy = 80;          // instructions of a warp for 32 copies
constexpr double kL2Bytes = 20.5;     // a cycle
constexpr double kRest = 0.22;        // of what is less busy that is not hidden
constexpr double kMemoryRate = 0.9;   // of the copy rate
constexpr double kBeside = 0.05;      // of the lesser of work and bytes
constexpr double kSum = 2.5;          // us, the second pass,
constexpr double kPartialRate = 1.5;  // and times the copy rate's time

struct Choice {
  int row, row_units, out_units, in_units, chunks, stages, split;
};

int64_t combinations(const Params& p) {
  return int64_t{p.groups} * p.row_blocks * p.tap_blocks * p.out_blocks * p.in_blocks;
}

void set_stages(int stages, Params& p) {
  p.stages = stages;
  p.slots = (stages - 2) * p.new_lines + 2 * p.lines;
}

void shape(const Problem& problem, const Choice& choice, Params& p) {
  const Tile tile = kTiles[choice.row];
  const Axis &h = problem.h, &w = problem.w;
  const int size = static_cast<int>(element_size(problem.dtype)), vector = 16 / size;
  p = {};
  set_weight_extents(problem, p);
  p.y_h = static_cast<int32_t>(h.out), p.y_w = static_cast<int32_t>(w.out);
  p.y_plane = p.y_h * p.y_w;
  p.stride_h = static_cast<int32_t>(h.stride), p.dilation_h = static_cast<int32_t>(h.dilation);
  p.pad_h = static_cast<int32_t>(h.near_pad), p.pad_w = static_cast<int32_t>(w.near_pad);
  p.kernel_h = static_cast<int32_t>(h.kernel), p.kernel_w = static_cast<int32_t>(w.kernel);
  p.row_units = choice.row_units, p.out_units = choice.out_units, p.in_units = choice.in_units;
  p.chunks = choice.chunks;
  while (1 << p.chunk_shift < p.chunks) ++p.chunk_shift;
  p.parts = std::min(p.chunks, tile.warps / units(p));
  const int rows = std::min(block_rows(p, tile), p.kernel_h);
  p.line_step = std::gcd(p.stride_h, p.dilation_h);
  p.tap_lines = p.dilation_h / p.line_step;
  p.lines = (rows - 1) * p.tap_lines + 1;
  p.new_lines = std::min(p.stride_h / p.line_step, p.lines);
  // A line's numbers, wherever among 16 bytes it starts; what the last lane reads beyond them; and channels two of which
  // meet all banks.
  const int words = p.chunks * kChunkWords, pixels = words * 4 / size;
  p.x_pitch = words * 4 + 16;
  p.y_vectors = ((pixels - 1) * tile.stride + tile.taps_w + vector - 1 + vector - 1) / vector;
  const int read = (words - kLaneWords) * tile.stride / 4 + lane_vectors(tile);
  p.y_pitch = (std::max(p.y_vectors, read) | 1) * 16;
  p.by_vectors = FastDivide(p.y_vectors);
  set_stages(choice.stages, p);
  p.row_blocks = static_cast<int32_t>(ceil_div(p.kernel_h, block_rows(p, tile)));
  p.tap_blocks = static_cast<int32_t>(ceil_div(p.kernel_w, tile.taps_w));
  p.out_blocks = static_cast<int32_t>(ceil_div(p.columns, block_outputs(p)));
  p.in_blocks = static_cast<int32_t>(ceil_div(p.rows, block_inputs(p, tile)));
  p.row_tiles = static_cast<int32_t>(ceil_div(p.x_w, pixels));
  p.steps = p.batch * p.row_tiles * p.x_h;
  p.split = choice.split;
  p.by_rows = FastDivide(p.x_h);
  p.by_tiles = FastDivide(p.row_tiles);
}

double predict(const Problem& problem, const Device& device, const Params& p, Tile tile) {
  const int size = static_cast<int>(element_size(problem.dtype));
  const bool strict = is_strict(problem);
  const double products = strict ? 3 : 1;
  // Of a chunk and a warp: multiplications, loads of 16 bytes, instructions.
  const double mmas = double(sums(tile)) / 4 * kSlices * products;
  const double loads = tile.inputs * 2 + tile.taps_h * 2 * (lane_vectors(tile) - 0.5);
  const double words = lane_words(tile);
  const double moved = 2.5 * tile.taps_h * 2 * words;
  const double made = strict ? 5 * (tile.taps_h * 2.0 * words * 1.8 + tile.inputs * 8) + sums(tile)
                             : 2 * (tile.taps_h * 2.0 * words + tile.inputs * 8);
  // Of a multiprocessor: 16 x 8 x 8 products to an instruction.
  const double rate = device.mma_tf32_per_us / device.sm_count / kClock / kTensorTime;
  const double mma_cycles = 1024.0 / rate;
  const int used = units(p) * p.parts;
  const double each = std::ceil(double(p.chunks) / p.parts);  // chunks of a warp
  const double busiest_warps = std::ceil(used / 4.0) * 4;     // of four schedulers
  const double mma = busiest_warps * each * mmas * mma_cycles;
  const double copies = double(block_inputs(p, tile)) * p.chunks * 8 +
                        double(p.new_lines) * block_outputs(p) * p.y_vectors;
  const double issue =
      busiest_warps / 4 * each * (kIssued * (mmas + loads + 40) + kMoved * moved + kMade * made) +
      copies / 32 * kCopy / 4;
  const double shared = units(p) * p.chunks * loads * 4 + copies / 8 * 1.5;
  const double l2 = copies * 16 / kL2Bytes;
  const double busiest = std::max({mma, issue, shared, l2});
  const double cycles = busiest + kRest * (mma + issue + shared + l2 - busiest) + kStep;
  const double blocks = double(combinations(p)) * p.split;
  const double steps = std::ceil(double(p.steps) / p.split);
  // A strip's first step brings all lines.
  const double first = kFirst * double(p.lines - p.new_lines) * block_outputs(p) * p.y_vectors *
                       16 / kL2Bytes * std::max(1.0, steps / p.x_h);
  const double busy_us = std::ceil(blocks / device.sm_count) *
                         (kBlock + kStored * sums(tile) + first + steps * cycles) / kClock;
  return weight_us(problem, device, p.split, busy_us,
                   {kLaunch, kMemoryRate, kBeside, kSum, kPartialRate});
}

// Every tile that fits, in no order: the same for all devices. `reason` says why there is none.
std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason) {
  std::vector<Candidate<Choice>> found;
  reason = "a stride of " + std::to_string(problem.w.stride) + " along rows";
  const bool strict = is_strict(problem);
  for (int row = strict ? kFirstStrict : 0; row < (strict ? kTileCount : kFirstStrict); ++row) {
    const Tile tile = kTiles[row];
    if (tile.stride != problem.w.stride) continue;
    const auto up_to = [](int64_t needed, int each) {
      return static_cast<int>(ceil_div(needed, each));
    };
    for (int row_units = 1; row_units <= std::min(4, up_to(problem.h.kernel, tile.taps_h));
         ++row_units)
      for (int out_units = 1; out_units <= std::min(4, up_to(problem.group_out(), kOutputs));
           ++out_units)
        for (int in_units = 1; in_units <= std::min(4, up_to(problem.group_in(), tile.inputs * 8));
             ++in_units)
          for (int chunks = kMostChunks; chunks >= 1; chunks /= 2) {
            if (row_units * out_units * in_units > tile.warps) continue;
            Choice choice{row, row_units, out_units, in_units, chunks, kMostStages, 1};
            Params p;
            shape(problem, choice, p);
            const auto fits = [&] {
              set_stages(choice.stages, p);
              return shared_bytes(p, tile) <= device.smem_optin && p.x_h >= p.stages - 1;
            };
            while (choice.stages > 1 && !fits()) --choice.stages;
            if (choice.stages < 2) {
              reason = "two steps take " + std::to_string(shared_bytes(p, tile)) +
                       " bytes of shared memory";
              continue;
            }
            if (combinations(p) > INT32_MAX) {
              reason = "dW has too many tiles";
              continue;
            }
            const int pixels =
                chunks * kChunkWords * 4 / static_cast<int>(element_size(problem.dtype));
            for (int split : splits_worth_trying(problem, combinations(p), p.steps, pixels)) {
              p.split = choice.split = split;
              found.push_back({choice, predict(problem, device, p, tile)});
            }
          }
  }
  return found;
}

Plan plan_of(const Problem& problem, const Device& device, const Choice& choice) {
  const Tile tile = kTiles[choice.row];
  Params p;
  shape(problem, choice, p);
  Plan plan = weight_sum_plan(problem, device, choice.row, choice.split,
                              predict(problem, device, p, tile), kLaunch);
  const int detail[] = {choice.row_units, choice.out_units, choice.in_units, choice.chunks,
                        choice.stages};
  std::copy(std::begin(detail), std::end(detail), plan.detail);
  const auto number = [](int value) { return std::to_string(value); };
  plan.note = number(block_outputs(p)) + " x " + number(block_inputs(p, tile)) + " channels, " +
              number(block_rows(p, tile)) + " x " + number(tile.taps_w) + " taps, warps of 16 x " +
              number(tile.inputs * 8) + " and " + number(tile.taps_h) + " x " +
              number(tile.taps_w) + ", " + number(p.parts) + " parts of " + number(p.chunks) +
              " chunks, " + number(p.stages) + " stages and " + number(p.slots) + " lines, split " +
              number(p.split) + ", " + std::to_string(blocks_of(p)) + " blocks";
  return plan;
}

std::string refusal(const Problem& problem, const Device& device) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  const Axis &h = problem.h, &w = problem.w;
  if (!device.has_wgmma) return "heddle is for sm_90a";
  if (problem.direction != Direction::grad_weight) return "heddle is for gradients";
  // In 16 bits igemm took 0.8 of its time (kernelbench_1_71, 1_75, 1_78, 2026-11-24).
  if (problem.dtype != DType::f32) return "heddle's grad_weight is for fp32";
  if (problem.x_layout != Layout::nchw || problem.y_layout != Layout::nchw)
    return "heddle is for NCHW";
  if (w.in * static_cast<int64_t>(element_size(problem.dtype)) % 16 != 0)
    return "rows of x, " + number(w.in) + ", are no whole 16 bytes";
  if (w.kernel > 1 && w.dilation != 1) return "taps lie " + number(w.dilation) + " apart";
  if (h.in < 1) return "no rows";
  if (problem.wide_index) return "a tensor has more than 2^31 elements";
  // From a row of x to its lines, outside of dY as well: 32 bits hold it.
  if ((std::abs(h.near_pad) + h.in * h.stride + h.kernel * h.dilation) * w.out +
          std::abs(w.near_pad) + (w.in + 1024) * w.stride + w.kernel >
      INT32_MAX / 2)
    return "taps lie too far apart";
  if (problem.batch * h.in * ceil_div(w.in, kChunkWords) > INT32_MAX / 2)
    return "x has too many rows";
  return sums_too_short(problem, kLeastSplitTerms);
}

}  // namespace

int shared_bytes(const Params& p, Tile tile) {
  const int64_t stages = int64_t{p.stages} * stage_bytes(p, tile) +
                         int64_t{p.slots} * slot_bytes(p) + p.stages * kToldBytes;
  const int64_t all_sums = int64_t{tile.warps} * sums(tile) * 128;
  return static_cast<int>(std::min<int64_t>(std::max(stages, all_sums), INT32_MAX / 2));
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
  Params p;
  const int32_t* d = plan.detail;
  shape(problem, {plan.row, d[0], d[1], d[2], d[3], d[4], plan.split}, p);
  set_weight_tensors(args, p);
  const auto steps = weight_steps(args, p);
  std::copy(steps.begin(), steps.end(), p.stride);
  return p;
}

}  // namespace convt2d::cuda::heddle
