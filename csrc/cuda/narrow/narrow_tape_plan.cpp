// Which tapes fit a problem, their predicted times, and what a kernel is told of one.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/phases.h"
#include "cuda/gather_params.h"
#include "cuda/narrow/narrow_plan.h"
#include "cuda/narrow/narrow_ribbon.h"
#include "cuda/narrow/narrow_tape.h"
#include "cuda/strict_sums.h"

namespace convt2d::cuda::narrow {
namespace {

constexpr double kClock = 1700;  // cycles a microsecond

// What things cost, in cycles where nothing else is said.
constexpr double kLaunch = 7.3;        // us: an empty kernel, the tail
constexpr double kStart = 1200;        // of a block: barriers, weights that are on their way
constexpr double kWeight = 1.5;        // of a weight of a thread of a block
constexpr double kRow = 250;           // of a team's row: what goes to memory, sums that move up
constexpr double kChunk = 120;         // of a team's chunk: waiting for it, and for its last product
constexpr double kSlice = 130;         // of a team's slice: fetching
constexpr double kWgmma = 1.15;        // times what an instruction takes
constexpr double kSharedSlice = 110;   // of a multiprocessor's shared memory: fetching and bringing a slice
constexpr double kMemoryRate = 0.78;   // of the copy rate
constexpr double kAgain = 0.3;         // of a byte that is brought again, from L2
constexpr double kBeside = 0.3;        // of the lesser of work and bytes

struct Choice {
  int tape, run, teams, stages, strands;
};

// By how many pixels from its unit an output reads, at most.
int64_t reach_of_units(const Axis& w) {
  int64_t most = 0;
  for (int64_t phase = 0; phase < w.stride; ++phase)
    for (int64_t kw = 0; kw < w.kernel; ++kw) {
      const int64_t from = phase + w.near_pad - kw * w.dilation;
      if (from % w.stride == 0) most = std::max(most, std::abs(from / w.stride));
    }
  return most;
}

bool fits(const Problem& problem, Tape tape) {
  return problem.h.stride * problem.out_channels * 2 <= tape.row &&
         reach_of(problem.h) < tape.span && reach_of_units(problem.w) <= tape.reach;
}

// Everything that follows from the problem and the choice, pointers aside. The refusal has seen to limits.
void shape(const Problem& problem, const Choice& choice, TapeParams& p) {
  const Tape tape = kTapes[choice.tape];
  const Axis &h = problem.h, &w = problem.w;
  p = {};
  set_extents(problem, p);
  p.x_h = static_cast<int32_t>(h.in);
  p.x_w = static_cast<int32_t>(w.in);
  set_geometry(problem, p);
  p.dilation_w = static_cast<int32_t>(w.dilation);
  p.number_bytes = static_cast<int32_t>(element_size(problem.dtype));
  const int channels = slice_channels(p.number_bytes);
  p.chunk_slices = p.reduce > 2 * channels ? 4 : 2;
  p.chunks = static_cast<int32_t>(ceil_div(p.reduce, p.chunk_slices * channels));
  p.reach = static_cast<int32_t>(reach_of(h));
  p.channels_last = problem.x_layout == Layout::nhwc;
  p.x_channel = p.channels_last ? 1 : p.x_h * p.x_w;
  p.x_pixel = p.channels_last ? p.reduce : 1;
  p.y_channel = p.channels_last ? 1 : p.y_h * p.y_w;
  p.y_pixel = p.channels_last ? p.columns : 1;
  p.whole = !p.channels_last && p.y_w * p.number_bytes % 16 == 0;

  p.run = choice.run;
  p.images = kTapePixels / p.run;
  p.units = static_cast<int32_t>(ceil_div(p.y_w, 2));
  p.step = p.run - 2 * kTapeEdge;
  const int32_t pixels = std::max(p.x_w, p.units);
  p.sweeps = pixels <= p.run ? 1 : static_cast<int32_t>(ceil_div(pixels - p.run, p.step)) + 1;
  p.first_row = p.pad_h / p.stride_h;
  p.rows = static_cast<int32_t>(end_of(h)) - p.first_row;
  p.by_run = FastDivide(p.run);
  p.by_columns = FastDivide(p.columns);
  p.by_row_columns = FastDivide(2 * p.columns);
  p.by_dilation_h = FastDivide(p.dilation_h);
  p.by_dilation_w = FastDivide(p.dilation_w);
  p.by_sweeps = FastDivide(p.sweeps);
  p.by_rows = FastDivide(p.rows);

  const int64_t all = ceil_div(p.batch, p.images) * p.sweeps * p.rows;
  p.strands = static_cast<int32_t>(std::min<int64_t>(choice.strands, all));
  p.strand_rows = static_cast<int32_t>(all / p.strands);
  p.longer = static_cast<int32_t>(all % p.strands);
  p.teams = choice.teams;

  const int32_t chunk_bytes = p.chunk_slices * kSliceBytes;
  p.line = p.channels_last ? chunk_bytes : std::min(p.run * p.number_bytes, 128);
  p.box_bytes =
      p.channels_last ? kTapePixels * p.line : p.images * p.line * p.chunk_slices * channels;
  while (p.line >> p.line_bits > p.number_bytes) ++p.line_bits;
  p.stages = choice.stages;
  p.stage_bytes = kTapePixels * chunk_bytes;
  SharedPlaces places{kTapeHeader};
  p.zeros_at = places.take(128, 128);
  p.weights_at = places.take(int64_t{p.chunks} * p.chunk_slices * tape_slice_weights(tape), 128);
  p.stages_at = places.take(int64_t{p.teams} * p.stages * p.stage_bytes, 1024);
  p.shared_bytes = static_cast<int32_t>(places.end);
}

double predict(const Problem& problem, const Device& device, const Choice& choice,
               const TapeParams& p) {
  const Tape tape = kTapes[choice.tape];
  const double slices = double(p.chunks) * p.chunk_slices;
  const double products = 2. * tape_steps(tape) * kWgmma * std::max(16, tape_columns(tape) / 2);
  const double alone = kRow + p.chunks * kChunk + slices * (kSlice + products);
  const double shared = slices * std::max(products, kSharedSlice);
  const int blocks = tape_blocks(p),
            together = p.teams * static_cast<int>(ceil_div(blocks, device.sm_count));
  const double rows = p.strand_rows + (p.longer > 0) + p.reach;
  const double weights = double(tape_slice_weights(tape)) / p.number_bytes * slices /
                         (p.teams * kTeamThreads) * kWeight * p.teams;
  const double busy_us =
      (kStart + weights + rows * std::max(alone, together * shared)) / kClock;
  const double brought =
      double(p.strands) * (p.strand_rows + p.longer / double(p.strands) + p.reach) * p.chunks *
      p.stage_bytes;
  const double once = double(p.batch) * p.reduce * p.x_h * p.x_w * p.number_bytes;
  const double bytes = tensor_bytes(problem) + kAgain * std::max(0., brought - once);
  const double memory_us = bytes / (kMemoryRate * device.copy_bytes_per_us);
  return kLaunch + std::max(busy_us, memory_us) + kBeside * std::min(busy_us, memory_us);
}

std::string refusal(const Problem& problem, const Device& device) {
  const std::string common = common_refusal(problem, device);
  if (!common.empty()) return common;
  if (is_strict(problem)) return "tapes take no strict fp32";
  if (problem.w.stride != 2)
    return "a step of " + std::to_string(problem.w.stride) + " along rows is not a tape's 2";
  for (const Tape& tape : kTapes)
    if (fits(problem, tape)) return {};
  return "no tape has room for all that becomes of a pixel";
}

std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason) {
  std::vector<Candidate<Choice>> found;
  for (int tape = 0; tape < kTapeCount; ++tape) {
    if (!fits(problem, kTapes[tape])) continue;
    for (int run = kTapePixels; run >= kLeastRun; run /= 2)
      for (int teams = kTapes[tape].teams; teams > 0; --teams) {
        if (teams * kTeamThreads < tape_steps(kTapes[tape]) * tape_stored(kTapes[tape])) continue;
        Choice choice = {tape, run, teams, 2, teams * device.sm_count};
        TapeParams p;
        shape(problem, choice, p);
        if (p.shared_bytes > device.smem_optin) {
          reason = "two stages of a tape need " + std::to_string(p.shared_bytes) +
                   " bytes of shared memory";
          continue;
        }
        const int32_t room = device.smem_optin - p.shared_bytes;
        choice.stages = std::min(kMostTapeStages, 2 + room / (teams * p.stage_bytes));
        shape(problem, choice, p);
        found.push_back({choice, predict(problem, device, choice, p)});
      }
  }
  return found;
}

Plan plan_of(const Problem& problem, const Candidate<Choice>& candidate) {
  const Choice& c = candidate.choice;
  TapeParams p;
  shape(problem, c, p);
  Plan plan;
  plan.row = kTileCount + kRibbonCount + c.tape;
  plan.predicted_us = candidate.predicted_us;
  const int detail[] = {c.run, c.strands, c.stages, c.teams};
  std::copy(std::begin(detail), std::end(detail), plan.detail);
  plan.note = "tapes of " + std::to_string(kTapes[c.tape].row) + " columns x " +
              std::to_string(kTapes[c.tape].span) + " rows, " + std::to_string(p.images) +
              " images x " + std::to_string(p.run) + " pixels, " + std::to_string(p.strands) +
              " strands of " + std::to_string(p.strand_rows) + " rows, " +
              std::to_string(p.stages) + " stages, " + std::to_string(p.teams) + " teams, " +
              std::to_string(p.shared_bytes) + " bytes";
  return plan;
}

Choice choice_of(const Plan& plan) {
  const int32_t* d = plan.detail;
  return {plan.row - kTileCount - kRibbonCount, d[0], d[3], d[2], d[1]};
}

}  // namespace

std::vector<Plan> tape_plans(const Problem& problem, const Device& device, std::string& reason) {
  return all_plans(problem, device, reason, refusal, candidates, plan_of);
}

Decision tape_plan(const Problem& problem, const Device& device) {
  return best_plan(problem, device, refusal, candidates, plan_of);
}

TapeParams tape_params_of(const Problem& problem, const Plan& plan, const Args& args) {
  TapeParams p;
  shape(problem, choice_of(plan), p);
  set_tensors(problem, args, p);
  return p;
}

CUtensorMap tape_map_of(const TapeParams& p) {
  return map_of_lines(p, p.chunk_slices * slice_channels(p.number_bytes), true);
}

}  // namespace convt2d::cuda::narrow
