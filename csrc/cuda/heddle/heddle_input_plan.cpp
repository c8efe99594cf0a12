// Which tiles of heddle's grad_input fit a problem, their predicted times, and what a kernel is told of one.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/phases.h"
#include "cuda/cuda_families.h"
#include "cuda/gather_params.h"
#include "cuda/heddle/heddle_input.h"
#include "cuda/remembered.h"
#include "cuda/strict_sums.h"

namespace convt2d::cuda::heddle {
namespace {

// Counted; then what an H200 took for five layers, 2026-11-26: within 1.4 of it, and most of that in plans of few warps.
constexpr double kClock = 1700;  // cycles a microsecond
constexpr double kLaunch = 6;    // us,
constexpr double kBlock = 3500;  // and cycles of a block before its first line
// Instructions of a warp: a slice, beside what each row of x adds; a line; a step; rows of x that are no whole vectors; 32
// copies.
constexpr double kSliceHalves = 62, kSliceWords = 44, kSplit = 44, kLiveRow = 5, kLine = 60;
constexpr double kStep = 400, kOddRow = 250, kCopy = 45;
constexpr double kIssued = 0.65;      // of the instructions that a multiprocessor could start
constexpr double kShared = 0.8;       // of what shared memory could do
constexpr double kChain = 5.5;        // cycles for an instruction of a warp alone
constexpr double kMemoryRate = 0.85;  // of the copy rate
constexpr double kBeside = 0.2;       // of the lesser of work and bytes

struct Choice {
  int pixel_warps, input_warps, group_warps, stages, cuts;
};

int slice_numbers(const Problem& problem) { return element_size(problem.dtype) == 4 ? 8 : 16; }

// Channels of dY lie so far apart that few lanes of a load meet a bank twice: the best of what is possible, by the places
// of a first line's numbers.
int best_pitch(const InputParams& p, int size, int least) {
  int best = 0, least_turns = INT32_MAX;
  for (int pitch = static_cast<int>(round_up(least, 16)); pitch < least + 128; pitch += 16) {
    int turns = 0;
    for (int number = 0; number < std::min(p.reduce, 32 / size) && turns < least_turns; ++number) {
      int words[32][32], seen[32] = {}, most = 0;  // of a bank
      for (int lane = 0; lane < 32; ++lane) {
        const int k = std::min(p.reduce - 1, number + lane % 4 * (size == 4 ? 1 : 2));
        const int c = k / p.kernel_w, kw = k % p.kernel_w;
        const int lead = c * p.y_plane & (16 / size - 1);
        const int g = lane / 4;
        const int pixel = size == 4 ? g * kLanePixels : g / 2 * (2 * kLanePixels) + g % 2;
        const int element = kw * p.dilation_w + pixel * p.stride_w + lead;
        const int word = (c * pitch + element * size) / 4, bank = word % 32;
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
  thread_local Remembered<int, 7, 8> known;
  const int vector = 16 / size;
  return known.answer({size, least, p.stride_w, p.dilation_w, p.kernel_w, std::min(p.reduce, 32),
                       p.y_plane % vector},
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
  set_live_rows(p, p.step);
  p.reduce = p.columns * p.kernel_w;
  p.slices = static_cast<int32_t>(ceil_div(p.reduce, slice_numbers(problem)));
  p.pixel_warps = choice.pixel_warps;
  p.input_warps = choice.input_warps;
  p.group_warps = choice.group_warps;
  p.stages = choice.stages;
  p.width = p.pixel_warps * kWarpPixels;
  p.channels = p.group_warps * p.columns;
  p.whole = p.x_w % vector == 0;
  const int numbers = (p.width - 1) * p.stride_w + (p.kernel_w - 1) * p.dilation_w + 1;
  p.y_vectors = (numbers + vector - 1 + vector - 1) / vector;
  p.y_pitch = pitch_of(p, size, p.y_vectors * 16);
  const int64_t line_bytes = int64_t{p.channels} * p.y_pitch;
  p.line_bytes = static_cast<int32_t>(std::min<int64_t>(line_bytes, INT32_MAX / 64));
  p.in_blocks = static_cast<int32_t>(ceil_div(p.rows, p.input_warps * 8));
  p.group_blocks = p.groups / p.group_warps;
  const int row_tiles = static_cast<int>(ceil_div(p.x_w, p.width));
  p.segment_rows = static_cast<int32_t>(ceil_div(p.x_h, choice.cuts));
  const int cuts = static_cast<int>(ceil_div(p.x_h, p.segment_rows));
  p.segments = p.batch * row_tiles * cuts;
  const int64_t bytes = int64_t{p.stages} * p.step.lines * p.line_bytes;
  p.weights_at = static_cast<int32_t>(std::min<int64_t>(round_up(bytes, 16), INT32_MAX / 4));
  const int64_t weights = int64_t{p.group_warps} * p.input_warps * p.kernel_h * p.slices * 32 *
                          (is_strict(problem) ? 16 : 8);
  p.places_at = static_cast<int32_t>(std::min<int64_t>(p.weights_at + weights, INT32_MAX / 2));
  p.by_vectors = FastDivide(p.y_vectors);
  p.by_cuts = FastDivide(cuts);
  p.by_tiles = FastDivide(row_tiles);
}

int64_t combinations(const InputParams& p) { return int64_t{p.group_blocks} * p.in_blocks; }

int resident(const Device& device, const InputParams& p) {
  const int fit = device.smem_per_sm / (input_shared_bytes(p) + 1024);
  return std::clamp(fit, 1, kInputBlocks);
}

double predict(const Problem& problem, const Device& device, const InputParams& p) {
  const bool half = element_size(problem.dtype) == 2, strict = is_strict(problem);
  const double warps = double(p.pixel_warps) * p.input_warps * p.group_warps;
  double live = 0;  // rows of x of all lines of a step
  for (int line = 0; line < p.step.lines; ++line)
    live +=
        kLiveRows - std::count(p.step.kernel_row[line], p.step.kernel_row[line] + kLiveRows, -1);
  const double slices = double(p.slices) * p.step.lines;
  const double slice = half ? kSliceHalves : kSliceWords + (strict ? kSplit : 0);
  const double copies = double(p.step.lines) * p.channels * p.y_vectors;
  const double of_warp = slices * slice + p.slices * live * kLiveRow * (strict ? 2 : 1) +
                         p.step.lines * kLine + kStep + (p.whole ? 0 : kOddRow);
  const double issue = warps * of_warp + copies / 32 * kCopy;
  const double wavefronts =
      warps * (slices * (half ? 20 : 10) + p.slices * live * (strict ? 4 : 2)) + copies / 8 * 1.5;
  const double chain = kChain * (of_warp + copies / kInputThreads * kCopy);  // of a block alone
  const double steps =
      std::ceil(double(p.segments) / p.pieces) * (p.segment_rows + p.step.live - 1);
  const double blocks = double(combinations(p)) * p.pieces / device.sm_count;
  const double there = resident(device, p);
  const double rounds = std::ceil(blocks / there);
  const double at_once = std::min(there, std::ceil(blocks));
  const double busy = std::max(issue / 4 / kIssued, wavefronts / kShared);
  const double weights = double(p.places_at - p.weights_at) / 8 / kInputThreads * 60;
  const double busy_us =
      rounds * (kBlock + weights + steps * std::max(busy * at_once, chain)) / kClock;
  const double read = double(p.batch) * p.groups * p.columns * p.y_w * p.step.lines * p.x_h *
                      (p.segment_rows + p.step.live - 1) / p.segment_rows *
                      element_size(problem.dtype);
  const double bytes = read + double(problem.batch) * problem.in_channels * p.x_h * p.x_w *
                                  element_size(problem.dtype);
  const double memory_us = bytes / (kMemoryRate * device.copy_bytes_per_us);
  return kLaunch + std::max(busy_us, memory_us) + kBeside * std::min(busy_us, memory_us);
}

// Blocks share out segments: as many as are there at once.
void share_out(const Device& device, InputParams& p) {
  const int64_t most = int64_t{device.sm_count} * resident(device, p);
  p.pieces = static_cast<int32_t>(std::clamp<int64_t>(most / combinations(p), 1, p.segments));
}

std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason) {
  std::vector<Candidate<Choice>> found;
  const int64_t eights = ceil_div(problem.group_in(), 8);
  for (int pixel_warps : {1, 2, 4, 8})
    for (int input_warps : {1, 2, 4, 8})
      for (int group_warps : {1, 2, 4, 8}) {
        if (pixel_warps * input_warps * group_warps > kInputWarps) continue;
        if (problem.groups % group_warps != 0) continue;
        if (input_warps > 1 && input_warps >= 2 * eights) continue;
        if (pixel_warps > 1 && pixel_warps * kWarpPixels >= 2 * problem.w.in) continue;
        for (int stages : {2, 3, kMostInputStages})
          for (int cuts = 1; cuts <= 16 && cuts <= problem.h.in; ++cuts) {
            const Choice choice{pixel_warps, input_warps, group_warps, stages, cuts};
            InputParams p;
            shape(problem, choice, p);
            const int bytes = input_shared_bytes(p);
            if (bytes > device.smem_optin) {
              reason = std::to_string(stages) + " steps take " + std::to_string(bytes) +
                       " bytes of shared memory";
              break;
            }
            share_out(device, p);
            found.push_back({choice, predict(problem, device, p)});
          }
      }
  return found;
}

Plan plan_of(const Problem& problem, const Device& device, const Candidate<Choice>& candidate) {
  const Choice& choice = candidate.choice;
  InputParams p;
  shape(problem, choice, p);
  share_out(device, p);
  Plan plan;
  plan.predicted_us = candidate.predicted_us;
  const int detail[] = {choice.pixel_warps, choice.input_warps, choice.group_warps,
                        choice.stages,      choice.cuts,        p.pieces};
  std::copy(std::begin(detail), std::end(detail), plan.detail);
  const auto number = [](int64_t value) { return std::to_string(value); };
  plan.note = number(p.width) + " pixels, " + number(p.input_warps * 8) + " channels of " +
              number(p.group_warps) + " groups, segments of " + number(p.segment_rows) + " rows, " +
              number(p.step.lines) + " lines a step, " + number(p.stages) + " stages, " +
              number(input_blocks(p)) + " blocks of " + number(input_shared_bytes(p)) + " bytes";
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
  if (problem.batch * h.in * ceil_div(w.in, kLanePixels) > INT32_MAX / 2)
    return "x has too many rows";
  if (problem.group_out() * w.kernel > 4096)
    return number(problem.group_out()) + " output channels of a group";
  InputParams p;
  set_geometry(problem, p);
  if (const std::string lines = set_live_rows(p, p.step); !lines.empty()) return lines;
  return sums_too_short(problem, kLeastSplitTerms);
}

}  // namespace

int input_shared_bytes(const InputParams& p) {
  return static_cast<int>(
      std::min<int64_t>(p.places_at + int64_t{p.slices} * 4 * kPlaceBytes, INT32_MAX / 2));
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
  shape(problem, {d[0], d[1], d[2], d[3], d[4]}, p);
  p.pieces = d[5];
  p.x = args.x.data;
  p.y = args.y.data;
  p.weight = args.w.data;
  for (int i = 0; i < 4; ++i) p.weight_stride[i] = static_cast<int32_t>(args.w.stride[i]);
  return p;
}

}  // namespace convt2d::cuda::heddle
