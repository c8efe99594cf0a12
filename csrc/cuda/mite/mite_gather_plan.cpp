// mite, forward and grad_input: what a choice amounts to, and how long it should take.
#include <algorithm>
#include <cmath>

#include "core/phases.h"
#include "cuda/gather_params.h"
#include "cuda/mite/mite_plan.h"
#include "cuda/strict_sums.h"

namespace convt2d::cuda::mite {
namespace {

// Strict fp32: products of a sum, one after the other; with 108 the error was more than twice torch's (rows).
constexpr int64_t kMostPlainTerms = 64;

// Counted; what is dated was measured.
constexpr double kClock = 1700;      // cycles a microsecond
constexpr double kLaunch = 4.5;      // us, the way in and out
constexpr double kRound = 0.9;       // us that memory takes to answer
constexpr double kBlock = 220;       // instructions of a warp beside
constexpr double kNumber = 16;       // those for a number of the patch,
constexpr double kStep = 5;          // a slot's, beside multiplying,
constexpr double kChannel = 7;       // a channel's of a kernel row,
constexpr double kPosition = 30;     // a position's outputs of a phase,
constexpr double kWhole = 2;         // and a column's of these, where runs are stored at once,
constexpr double kApart = 5;         // where they are not
constexpr double kUsed = 0.65;       // of the instructions that a multiprocessor could start
constexpr double kStepWait = 45;     // cycles of a warp from one slot to the next
constexpr double kMemoryRate = 0.7;  // of the copy rate
constexpr double kBeside = 0.3;      // of the lesser of work and bytes
// Work over what is counted (flownet_flow, spleeter_up6, groups_of_4, 2026-11-24): forward and grad_input, in 16 bits and in
// words; forward to channels-last pixels of several groups, of which a block writes pieces.
constexpr double kHalvesForward = 1.3, kHalvesInput = 1.8, kWordsForward = 1.2, kWordsInput = 1.4,
                 kPieces = 2.2;

int32_t number(int64_t value) {
  return static_cast<int32_t>(std::clamp<int64_t>(value, INT32_MIN / 2, INT32_MAX / 2));
}

// Slots and phases of a row of the destination.
void set_taps(const Axis& axis, bool forward, GatherParams& p) {
  if (!forward) {
    p.phases_w = 1;
    p.slots = number(axis.kernel);
    p.slot_step = number(axis.dilation);
    p.first_column = number(-axis.near_pad);
    p.taps = {FastDivide(1), 1, 0, 0, 1};
    return;
  }
  p.phases_w = number(std::min(axis.stride, axis.out));
  const int64_t ahead = ceil_div(axis.near_pad, axis.stride);
  const int64_t shift = ahead * axis.stride - axis.near_pad;
  int64_t first = INT64_MAX, last = INT64_MIN;
  for (int64_t tap = 0; tap < axis.kernel; ++tap) {
    const int64_t reach = tap * axis.dilation + shift, quotient = reach / axis.stride;
    if (reach % axis.stride >= p.phases_w) continue;
    first = std::min(first, ahead - quotient);
    last = std::max(last, ahead - quotient);
  }
  if (first > last) first = last = 0;
  p.slots = number(last - first + 1);
  p.slot_step = 1;
  p.first_column = number(first);
  p.taps = {FastDivide(axis.stride), number(axis.dilation), number(shift), number(ahead - first),
            -1};
}

// Rows of the patch that a position reaches, beside its first one.
int64_t set_rows(const Axis& axis, bool forward, GatherParams& p) {
  p.phases_h = forward ? number(std::min(axis.stride, axis.out)) : 1;
  int64_t first = INT64_MAX, last = INT64_MIN;
  const auto walk_of = [&](int phase) {
    return forward ? forward_walk(axis, phase) : grad_input_walk(axis);
  };
  for (int phase = 0; phase < p.phases_h; ++phase) {
    const AxisWalk walk = walk_of(phase);
    p.tap_step = number(walk.tap_step);
    p.row_step = number(walk.offset_step);
    if (walk.taps == 0) continue;
    const int64_t end = walk.first_offset + (walk.taps - 1) * walk.offset_step;
    first = std::min({first, walk.first_offset, end});
    last = std::max({last, walk.first_offset, end});
  }
  if (first > last) first = last = 0;
  for (int phase = 0; phase < p.phases_h; ++phase) {
    const AxisWalk walk = walk_of(phase);
    p.walk[phase] = {number(walk.taps), number(walk.first_tap),
                     walk.taps ? number(walk.first_offset - first) : 0};
  }
  p.first_row = number(first);
  return last - first;
}

}  // namespace

std::string shape_gather(const Problem& problem, const Choice& choice, GatherParams& p) {
  p = {};
  const bool forward = problem.direction == Direction::fwd;
  const Axis &h = problem.h, &w = problem.w;
  const auto text = [](int64_t value) { return std::to_string(value); };
  if (forward && std::min(h.stride, h.out) > kMostPhases)
    return "rows have " + text(std::min(h.stride, h.out)) + " phases, more than " +
           text(kMostPhases);
  set_taps(w, forward, p);
  const int64_t reach_h = set_rows(h, forward, p);
  const int64_t reach_w = int64_t{p.slots - 1} * p.slot_step;
  p.depth = number(forward ? problem.group_in() : problem.group_out());
  p.columns = number(forward ? problem.group_out() : problem.group_in());
  p.tile_columns = choice.tile_columns;
  p.kernel_h = number(h.kernel);
  p.kernel_w = number(w.kernel);
  int64_t most_taps = 0;
  for (int phase = 0; phase < p.phases_h; ++phase)
    most_taps = std::max<int64_t>(most_taps, p.walk[phase].taps);
  const int64_t terms =
      most_taps * p.depth *
      (forward ? ceil_div(w.kernel, w.stride / gcd(w.stride, w.dilation)) : w.kernel);
  if (is_strict(problem) && terms > kMostPlainTerms)
    return "strict fp32 sums of " + text(terms) + " products, more than " + text(kMostPlainTerms) +
           ", want more than one running sum";
  const int64_t weights = int64_t{p.depth} * p.tile_columns * h.kernel * w.kernel;
  if (weights > kWeights * kThreads)
    return text(weights) + " weights of a block, more than " + text(kWeights * kThreads);
  p.weights = number(weights);
  p.patch.rows = number(forward ? h.in : h.out);
  p.patch.columns = number(forward ? w.in : w.out);
  p.destination_rows = number(forward ? h.out : h.in);
  p.destination_columns = number(forward ? w.out : w.in);
  p.source_step_h = forward ? 1 : number(h.stride);
  p.source_step_w = forward ? 1 : number(w.stride);
  p.destination_step_h = forward ? number(h.stride) : 1;
  p.destination_step_w = forward ? number(w.stride) : 1;
  p.positions_h = number(ceil_div(p.destination_rows, p.destination_step_h));
  p.positions_w = number(ceil_div(p.destination_columns, p.destination_step_w));
  p.tile_h = choice.tile_h;
  p.tile_w = choice.tile_w;
  const int64_t patch_h = int64_t{p.tile_h - 1} * p.source_step_h + reach_h + 1;
  const int64_t patch_w = int64_t{p.tile_w - 1} * p.source_step_w + reach_w + 1;
  const Form form = kForms[choice.row];
  const int64_t table = int64_t{p.kernel_h} * p.depth * p.slots * form.runs * form.run;
  if (patch_h > kSharedFloats || patch_w > kSharedFloats ||
      patch_h * patch_w * p.depth + table + kMostColumns + 8 > kSharedFloats)
    return "a patch of " + text(patch_h) + " x " + text(patch_w) + " has no room";
  const Layout source = forward ? problem.x_layout : problem.y_layout;
  set_patch(p.depth, patch_h, patch_w, source == Layout::nhwc, kThreads, p.patch);
  p.table_at = number(round_up(p.patch.count, 4));
  p.bias_at = p.table_at + number(round_up(table, 4));
  p.shared_bytes = 4 * (p.bias_at + kMostColumns);
  const Layout to = forward ? problem.y_layout : problem.x_layout;
  const bool pixels = to == Layout::nhwc;
  p.run_channels = pixels;
  p.run_phases = !pixels || choice.merged;
  p.place_channel = pixels ? 1 : form.run;
  p.place_phase = !pixels ? 1 : choice.merged ? p.columns : form.run;
  p.by_place = FastDivide(std::max(p.place_channel, p.place_phase));
  p.by_tile_w = FastDivide(p.tile_w);
  p.by_tiles_w = FastDivide(ceil_div(p.positions_w, p.tile_w));
  p.by_tiles_h = FastDivide(ceil_div(p.positions_h, p.tile_h));
  p.by_batch = FastDivide(problem.batch);
  p.by_column_tiles = FastDivide(ceil_div(p.columns, p.tile_columns));
  p.by_kernel_w = FastDivide(w.kernel);
  p.by_kernel_h = FastDivide(h.kernel);
  p.by_tile_columns = FastDivide(p.tile_columns);
  const double blocks = double(p.by_tiles_w.divisor) * p.by_tiles_h.divisor * p.by_batch.divisor *
                        p.by_column_tiles.divisor * double(problem.groups);
  if (blocks > INT32_MAX / 2) return "too many tiles";
  p.blocks = static_cast<int32_t>(blocks);
  return {};
}

double predict_gather(const Problem& problem, const Device& device, const Choice& choice,
                      const GatherParams& p) {
  const Form form = kForms[choice.row];
  const double columns = form.runs * form.run, warps = kThreads / 32;
  double rows = 0;
  for (int phase = 0; phase < p.phases_h; ++phase) rows += p.walk[phase].taps;
  const double channels = rows * p.depth, steps = channels * p.slots;
  const double vectors = std::ceil(columns / 4);
  const bool whole = p.run_phases ? true : choice.tile_columns == form.run;
  const bool together = columns <= 8 && p.slot_step == 1 && (p.slots == 3 || p.slots == 4);
  const double loops = together ? channels : steps;
  const double instructions =
      warps * (kBlock + steps * (vectors + kPositions * (1 + columns)) + loops * kStep +
               (together ? 0 : channels * kChannel) +
               p.phases_h * kPositions * (kPosition + columns * (whole ? kWhole : kApart))) +
      bringing(p.patch) * kNumber;
  // Shared memory: neighbouring positions may be some numbers apart.
  const double conflicts = std::min<double>(double(gcd(p.source_step_w, 32)), 32);
  const double words = warps * steps * (vectors + kPositions * conflicts);
  const double cycles = std::max(instructions / 4 / kUsed, words / kUsed);
  const double resident = std::min<double>(blocks_beside(form.runs * form.run),
                                           device.smem_per_sm / (p.shared_bytes + 1024.));
  const double turns = std::ceil(double(p.blocks) / device.sm_count);
  const double waves = std::ceil(turns / std::floor(resident));
  const double fills = rounds(p.patch, kThreads, kFill);
  const double waiting = waves * (fills * kRound + loops * kStepWait / kClock);
  const int64_t size = element_size(problem.dtype);
  const bool forward = problem.direction == Direction::fwd, half = size == 2,
             pieces = forward && problem.groups > 1 && problem.y_layout == Layout::nhwc;
  const double over =
      (half ? (forward ? kHalvesForward : kHalvesInput) : (forward ? kWordsForward : kWordsInput)) *
      (pieces ? kPieces : 1);
  const double busy = over * std::max(turns * cycles / kClock, waiting);
  const double to_line =
      double(p.tile_w) * p.destination_step_w * (p.run_channels ? p.tile_columns : 1);
  const double to_lines = double(p.tile_h) * p.phases_h * (p.run_channels ? 1 : p.tile_columns);
  const double moved =
      p.blocks * (sectors(p.patch.lines, p.patch.line, size) + sectors(to_lines, to_line, size));
  const double memory =
      std::max(tensor_bytes(problem) / kMemoryRate, moved) / device.copy_bytes_per_us;
  return kLaunch + std::max(busy, memory) + kBeside * std::min(busy, memory);
}

GatherParams gather_params_of(const Problem& problem, const Plan& plan, const Args& args) {
  GatherParams p;
  const Choice choice{plan.row, plan.detail[kTileH], plan.detail[kTileW], plan.detail[kTileColumns],
                      plan.detail[kMerged]};
  shape_gather(problem, choice, p);
  set_tensors(problem, args, p);
  const bool forward = problem.direction == Direction::fwd;
  const TensorRef& source = forward ? args.x : args.y;
  const TensorRef& to = forward ? args.y : args.x;
  set_tensor(source, p.patch);
  p.destination_n = number(to.stride[0]), p.destination_c = number(to.stride[1]);
  p.destination_h = number(to.stride[2]), p.destination_w = number(to.stride[3]);
  p.run_stride = p.run_channels ? p.destination_w : p.destination_c;
  // A run is stored at once where it is whole and begins at a multiple of itself, wherever it is.
  const int64_t run = kForms[plan.row].run, step = int64_t{p.destination_w} * p.destination_step_w;
  const int64_t bytes = std::min<int64_t>(16, run * element_size(problem.dtype));
  const int64_t size = element_size(problem.dtype);
  const auto whole = [&](int64_t numbers) { return numbers * size % bytes == 0; };
  p.whole_runs =
      aligned(to.data, bytes) && whole(p.destination_n) && whole(p.destination_h) && whole(step) &&
      (choice.merged || whole(p.run_stride)) &&
      (p.by_column_tiles.divisor == 1 || whole(int64_t{p.destination_c} * p.tile_columns)) &&
      (problem.groups == 1 || whole(int64_t{p.destination_c} * p.columns));
  return p;
}

}  // namespace convt2d::cuda::mite
