// Which tiles of heddle's grad_input fit a problem, their predicted times, and what a kernel is told of one.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "core/phases.h"
#include "cuda/cuda_families.h"
#include "cuda/gather_params.h"
#include "cuda/heddle/heddle_input.h"
#include "cuda/remembered.h"
#include "cuda/strict_sums.h"

namespace convt2d::cuda::heddle {
namespace {

// Fitted to 2000 plans, 2026-11-24, an H200: measured / predicted is 0.92 to 1.14 where it is near other families (1.47:
// kernelbench_1_81 in fp16). As counted, 1.3 to 4: above all a step, and its tiles, took longer.
constexpr double kClock = 1700;       // cycles a microsecond
constexpr double kLaunch = 6;         // us,
constexpr double kBlock = 2300;       // and cycles of a block,
constexpr double kWeights = 145;      // a slice of its weights
constexpr double kStep = 1700;        // a step: the barrier, and what follows it,
constexpr double kLine = 260;         // a line that is asked for
constexpr double kTensorTime = 1.2;   // of what the rates of Device say
constexpr double kTwice = 1.8;        // loads of numbers that meet a bank twice
constexpr double kChain = 134;        // a slice, from loads to sums, of a warp alone,
constexpr double kTurn = 3150;        // its tiles, from their first places to the outputs stored
constexpr double kCopy = 58;          // instructions of a warp for 32 copies
constexpr double kL2Bytes = 19;       // a cycle
constexpr double kRest = 0.32;        // of what is less busy that is not hidden
constexpr double kMemoryRate = 0.85;  // of the copy rate
constexpr double kStrictOver =
    1.15;  // kernelbench_1_75: 612 us for 567, where direct takes 557 (2026-11-24)
constexpr double kBeside = 0.2;  // of the lesser of work and bytes

struct Choice {
  int row, width, step_rows, input_warps, stages;
};

int slice_channels(const Problem& problem) { return element_size(problem.dtype) == 4 ? 8 : 16; }

// Channels of dY lie so far apart that few lanes of a load meet a bank twice: the best of what is possible, by the places
// of a first line's numbers.
int best_pitch(const InputParams& p, int size, int least) {
  int best = 0, least_turns = INT32_MAX;
  for (int pitch = static_cast<int>(round_up(least, 16)); pitch < least + 128; pitch += 16) {
    int turns = 0;
    for (int row = 0; row < 4; ++row) {
      int words[32][32], seen[32] = {}, most = 0;  // of a bank
      for (int lane = 0; lane < 32; ++lane) {
        const int c = lane % 4 * (size == 4 ? 1 : 2);
        const int lead = (row * p.y_w + c * p.y_plane) & (16 / size - 1);
        const int word = (c * pitch + (lane / 4 * p.stride_w + lead) * size) / 4, bank = word % 32;
        bool again = false;  // a word that another lane wants
        for (int i = 0; i < seen[bank]; ++i) again |= words[bank][i] == word;
        if (again) continue;
        words[bank][seen[bank]] = word;
        most = std::max(most, ++seen[bank]);
      }
      turns += most;
    }
    if (turns < least_turns) least_turns = turns, best = pitch;
  }
  return best;
}
int pitch_of(const InputParams& p, int size, int least) {
  thread_local Remembered<int, 5, 8> known;
  const int vector = 16 / size;
  return known.answer({size, least, p.stride_w, p.y_w % vector, p.y_plane % vector},
                      [&](int& pitch) { pitch = best_pitch(p, size, least); });
}

void shape(const Problem& problem, const Choice& choice, InputParams& p) {
  const Axis &h = problem.h, &w = problem.w;
  const int size = static_cast<int>(element_size(problem.dtype)), vector = 16 / size;
  p = {};
  p.batch = static_cast<int32_t>(problem.batch);
  p.groups = static_cast<int32_t>(problem.groups);
  p.rows = static_cast<int32_t>(problem.group_in());
  p.columns = static_cast<int32_t>(problem.group_out());
  p.x_h = static_cast<int32_t>(h.in), p.x_w = static_cast<int32_t>(w.in);
  p.y_plane = static_cast<int32_t>(h.out * w.out);
  set_geometry(problem, p);
  p.dilation_w = static_cast<int32_t>(w.dilation);
  p.row = choice.row, p.width = choice.width, p.step_rows = choice.step_rows;
  p.stages = choice.stages;
  // Lines that steps share, or those of a step alone.
  p.line_step = std::gcd(p.stride_h, p.dilation_h);
  p.tap_lines = p.dilation_h / p.line_step, p.row_lines = p.stride_h / p.line_step;
  p.lines = (p.kernel_h - 1) * p.tap_lines + (p.step_rows - 1) * p.row_lines + 1;
  p.new_lines = p.step_rows * p.row_lines;
  if (p.new_lines >= p.lines) {
    p.apart = 1, p.tap_lines = 1, p.row_lines = p.kernel_h;
    p.lines = p.new_lines = p.kernel_h * p.step_rows;
  }
  p.slots = (p.stages - 2) * p.new_lines + 2 * p.lines;
  const int slice = slice_channels(problem);
  p.slices = static_cast<int32_t>(ceil_div(p.columns, slice));
  p.channels = p.slices * slice;
  const int numbers = (p.width - 1) * p.stride_w + (p.kernel_w - 1) * p.dilation_w + 1;
  p.y_vectors = (numbers + vector - 1 + vector - 1) / vector;
  p.y_pitch = pitch_of(p, size, p.y_vectors * 16);
  p.input_warps = choice.input_warps;
  p.pixel_warps = kInputWarps / p.input_warps;
  p.in_blocks = static_cast<int32_t>(ceil_div(p.rows, p.input_warps * (p.row + 1) * 8));
  const int row_steps = static_cast<int>(ceil_div(p.x_h, p.step_rows));
  const int row_tiles = static_cast<int>(ceil_div(p.x_w, p.width));
  p.steps = p.batch * row_tiles * row_steps;
  const int64_t bytes = int64_t{p.slots} * p.channels * p.y_pitch;
  p.weights_at = static_cast<int32_t>(std::min<int64_t>(round_up(bytes, 16), INT32_MAX / 2));
  p.by_vectors = FastDivide(p.y_vectors);
  p.by_rows = FastDivide(row_steps);
  p.by_tiles = FastDivide(row_tiles);
}

int64_t combinations(const InputParams& p) { return int64_t{p.groups} * p.in_blocks; }

double predict(const Problem& problem, const Device& device, const InputParams& p) {
  const bool half = element_size(problem.dtype) == 2, strict = is_strict(problem);
  const double products = strict ? 3 : 1, eights = p.row + 1;
  const double tiles = double(p.step_rows) * p.width / kTilePixels;
  const double turns = std::ceil(tiles / (p.pixel_warps * kTilesAtOnce));  // of a warp
  const double slices = double(p.kernel_h) * p.kernel_w * p.slices;
  const double warps =
      std::min(double(p.pixel_warps), std::ceil(tiles / kTilesAtOnce)) * p.input_warps;
  // Of a slice and a warp: two tiles.
  const double loads = kTilesAtOnce * (half ? 8 : 4), weights = eights * (strict ? 4 : 2);
  const double issue_each = loads +
                            kTilesAtOnce * (half     ? 8
                                            : strict ? 44
                                                     : 12) +
                            eights + kTilesAtOnce * eights * products + 4;
  const double rate = (half ? device.mma_f16_per_us : device.mma_tf32_per_us) / device.sm_count /
                      kClock / kTensorTime;
  const double all = turns * warps * slices;
  const double mma = all * kTilesAtOnce * eights * products * 1024 * (half ? 2 : 1) / rate;
  const double copies = double(p.new_lines) * p.channels * p.y_vectors;
  const double shared = all * (loads * kTwice + weights) + copies / 8 * 1.5;
  const double issue = all * issue_each / 4 + copies / 32 * kCopy / 4;
  const double chain = turns * (slices * (kChain + issue_each) + kTurn);
  const double l2 = copies * 16 / kL2Bytes;
  const double busiest = std::max({mma, shared, issue, chain, l2});
  const double cycles = busiest + kRest * (std::max(mma, shared) + issue + l2 - busiest) + kStep +
                        kLine * p.new_lines;
  const double first = double(p.lines - p.new_lines) * p.channels * p.y_vectors * 16 / kL2Bytes;
  const double steps = std::ceil(double(p.steps) / p.pieces);
  const double rounds = std::ceil(double(combinations(p)) * p.pieces / device.sm_count);
  const double busy_us = rounds *
                         (kBlock + kWeights * slices * eights * p.input_warps +
                          first * (1 + steps / p.by_rows.divisor) + steps * cycles) /
                         kClock;
  // Lines whole, whatever taps read of them.
  const double bytes =
      double(p.batch) * p.groups * p.channels * element_size(problem.dtype) * p.y_w *
          (p.apart ? double(p.x_h) * p.kernel_h : double(p.y_h) / p.line_step) +
      double(problem.batch) * problem.in_channels * p.x_h * p.x_w * element_size(problem.dtype);
  const double memory_us = bytes / (kMemoryRate * device.copy_bytes_per_us);
  const double us = kLaunch + std::max(busy_us, memory_us) + kBeside * std::min(busy_us, memory_us);
  return strict ? kStrictOver * us : us;
}

// Blocks share out steps; each has a multiprocessor to itself.
void share_out(const Device& device, InputParams& p) {
  p.pieces =
      static_cast<int32_t>(std::clamp<int64_t>(device.sm_count / combinations(p), 1, p.steps));
}

std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason) {
  std::vector<Candidate<Choice>> found;
  for (int row = 0; row < kInputTileCount; ++row)
    for (int input_warps : {1, 2, 4, 8})
      for (int width = 16; width <= 256; width *= 2)
        for (int step_rows : {1, 2, 4}) {
          const int64_t eights = ceil_div(problem.group_in(), 8);
          if ((input_warps > 1 || row > 0) && input_warps * (row + 1) >= 2 * eights) continue;
          if (width > 16 && width >= 2 * problem.w.in) continue;
          if (step_rows > 1 && step_rows >= 2 * problem.h.in) continue;
          Choice choice{row, width, step_rows, input_warps, 4};
          InputParams p;
          const auto fits = [&] {
            shape(problem, choice, p);
            return input_shared_bytes(p, is_strict(problem)) <= device.smem_optin &&
                   int(p.by_rows.divisor) >= p.stages - 1;
          };
          while (choice.stages > 1 && !fits()) --choice.stages;
          if (choice.stages < 2) {
            reason = "two steps take " + std::to_string(input_shared_bytes(p, is_strict(problem))) +
                     " bytes of shared memory";
            continue;
          }
          share_out(device, p);
          found.push_back({choice, predict(problem, device, p)});
        }
  return found;
}

Plan plan_of(const Problem& problem, const Device& device, const Candidate<Choice>& candidate) {
  const Choice& choice = candidate.choice;
  InputParams p;
  shape(problem, choice, p);
  share_out(device, p);
  Plan plan;
  plan.row = choice.row;
  plan.predicted_us = candidate.predicted_us;
  const int detail[] = {choice.width, choice.step_rows, choice.input_warps, choice.stages,
                        p.pieces};
  std::copy(std::begin(detail), std::end(detail), plan.detail);
  const auto number = [](int64_t value) { return std::to_string(value); };
  plan.note = number(p.input_warps * (p.row + 1) * 8) + " channels, " + number(p.step_rows) +
              " x " + number(p.width) + " pixels, warps of 32 x " + number(8 * (p.row + 1)) + ", " +
              number(p.stages) + " stages and " + number(p.slots) + " lines" +
              (p.apart ? " apart" : "") + ", " + number(input_blocks(p)) + " blocks";
  return plan;
}

std::string refusal(const Problem& problem, const Device& device) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  const Axis &h = problem.h, &w = problem.w;
  if (!device.has_wgmma) return "heddle is for sm_90a";
  if (problem.direction != Direction::grad_input) return "heddle is for gradients";
  if (problem.dtype == DType::f64) return "heddle is for fp16, bf16 and fp32";
  if (problem.x_layout != Layout::nchw || problem.y_layout != Layout::nchw)
    return "heddle is for NCHW";
  if (problem.group_in() > 64) return number(problem.group_in()) + " input channels of a group";
  if (problem.wide_index) return "a tensor has more than 2^31 elements";
  // From a row of x to its lines, outside of dY as well: 32 bits hold it.
  if ((std::abs(h.near_pad) + (h.in + 4) * h.stride + h.kernel * h.dilation) * w.out +
          std::abs(w.near_pad) + (w.in + 256) * w.stride + w.kernel * w.dilation >
      INT32_MAX / 2)
    return "taps lie too far apart";
  if (problem.batch * h.in * ceil_div(w.in, kTilePixels) > INT32_MAX / 2)
    return "x has too many rows";
  return sums_too_short(problem, kLeastSplitTerms);
}

}  // namespace

int input_shared_bytes(const InputParams& p, bool strict) {
  const int64_t weights = int64_t{p.input_warps} * (p.row + 1) * p.kernel_h * p.kernel_w *
                          p.slices * 32 * (strict ? 16 : 8);
  return static_cast<int>(std::min<int64_t>(p.weights_at + weights, INT32_MAX / 2));
}

int64_t input_blocks(const InputParams& p) { return combinations(p) * p.pieces; }

std::vector<Plan> input_plans(const Problem& problem, const Device& device, std::string& reason) {
  return all_plans(problem, device, reason, refusal, candidates,
                   [&](const Problem& problem, const Candidate<Choice>& candidate) {
                     return plan_of(problem, device, candidate);
                   });
}

Decision input_plan(const Problem& problem, const Device& device) {
  return best_plan(problem, device, refusal, candidates,
                   [&](const Problem& problem, const Candidate<Choice>& candidate) {
                     return plan_of(problem, device, candidate);
                   });
}

InputParams input_params(const Problem& problem, const Plan& plan, const Args& args) {
  InputParams p;
  const int32_t* d = plan.detail;
  shape(problem, {plan.row, d[0], d[1], d[2], d[3]}, p);
  p.pieces = d[4];
  p.x = args.x.data;
  p.y = args.y.data;
  p.weight = args.w.data;
  for (int i = 0; i < 4; ++i) p.weight_stride[i] = static_cast<int32_t>(args.w.stride[i]);
  return p;
}

}  // namespace convt2d::cuda::heddle
