#include "cuda/crimp/crimp_plan.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/phases.h"
#include "cuda/cuda_families.h"
#include "cuda/gather_params.h"
#include "cuda/tensor_map.h"

namespace convt2d::cuda::crimp {
namespace {

// pleat's, but for what a tile takes beside its products, which is counted instructions: eight layers, 18 to 53 us (H200, 2026-11-29), within
// 15 %, but for one of 24 %.
constexpr double kClock = 1700;       // cycles a microsecond
constexpr double kLaunch = 6;         // us: launch, first boxes, last stores
constexpr double kTile = 200;         // cycles of a tile beside its products,
constexpr double kTileEight = 7;      // and of eight pixels of a warpgroup
constexpr double kTensorTime = 1.08;  // over an instruction's least
constexpr double kShallow = 40;       // cycles of a chunk of two instructions
constexpr double kArriving = 45;      // bytes a cycle that come to a multiprocessor
constexpr double kMemoryRate = 0.85;  // of the copy rate
constexpr double kBeside = 0.1;       // of the lesser of work and bytes

// Words: counted, and fitted to 280 plans of seven layers (H200, 2026-11-30).
constexpr double kWordArriving = 40;  // bytes a cycle
constexpr double kWordsLaid = 25;     // bytes a cycle of weights that are written for a block,
constexpr double kLaying = 1500;      // and cycles until the first are there
constexpr double kTileColumn = 3;     // cycles of a tile, of a column of a warpgroup
constexpr double kChain =
    140;  // of a slice of a warpgroup: its words are fetched and multiplied, one after the other
constexpr double kWordsShallow = 220;  // of a chunk of two slices
constexpr double kSharedBytes = 128;   // a cycle
constexpr double kBetween = 1.5;  // times as long, where every second row starts between 32 bytes

// `row` of the kernels: how wide a strip is, or of words how many columns there are.
struct Choice {
  int row, teams, slices, segments, stages, walkers;
};

bool is_words(const Problem& problem) { return problem.dtype == DType::f32; }

// Where things are in shared memory. A stage has so many lines of all channels of a chunk.
void set_places(int line, int stage_lines, int weight_bytes, int whole_bytes, int last_bytes,
                Params& p) {
  p.stage_bytes = stage_lines * line;
  p.weight_bytes = weight_bytes;
  constexpr int kAlignment = 1024;  // of what is swizzled
  SharedPlaces places{kOutAt};
  places.take(whole_bytes, kAlignment);
  p.last_at = places.take(last_bytes, kAlignment);
  p.weights_at = places.take(int64_t{p.chunks} * p.weight_bytes, kAlignment);
  p.stages_at = places.take(p.stages * p.stage_bytes, kAlignment);
  p.shared_bytes = static_cast<int32_t>(places.end);
}

// All but pointers.
Params shape(const Problem& problem, const Choice& choice) {
  const Axis &h = problem.h, &w = problem.w;
  const bool words = is_words(problem);
  Params p{};
  const auto number = [](int64_t value) { return static_cast<int32_t>(value); };
  p.groups = number(problem.groups), p.columns = number(problem.group_out());
  p.batch = number(problem.batch), p.reduce = number(problem.group_in());
  p.stride = number(h.stride), p.pad = number(h.near_pad), p.x_h = number(h.in);
  p.y_h = number(h.out), p.width = number(w.out);
  p.teams = choice.teams;
  p.channels = (words ? columns_of(choice.row) : p.teams * kRows) / (2 * p.stride);
  p.row_tiles = number(ceil_div(p.columns, p.channels));
  const int64_t row_strips = ceil_div(w.in, words ? kStripWords : eights_of(choice.row) * 8);
  p.strips =
      number(words ? ceil_div(problem.batch * row_strips, p.teams * kTeamStrips) : row_strips);
  p.segment_rows = number(ceil_div(h.in, choice.segments));
  p.segments = number(ceil_div(h.in, p.segment_rows));
  const int64_t items =
      (words ? 1 : problem.batch) * p.segments * p.strips * p.groups * p.row_tiles;
  p.items = number(std::min<int64_t>(items, INT32_MAX));
  p.walkers = choice.walkers;
  p.slices = choice.slices;
  const int depth = p.slices * (words ? kWordSlice : kSlice), line = depth * kLine;
  p.chunks = number(ceil_div(problem.group_in(), depth));
  p.stages = choice.stages;
  if (words) {
    const int strips = p.teams * kTeamStrips, columns = columns_of(choice.row);
    set_places(line, strips, depth * columns * 4, strips * strip_bytes(columns), 0, p);
  } else {
    const int eights = eights_of(choice.row), warps = p.teams * 4,
              last = box_bytes(last_eights(eights));
    set_places(line, boxes_of(eights), p.teams * line, warps * (box_bytes(eights) - last),
               warps * last, p);
  }
  p.by_row_tiles = FastDivide(p.row_tiles);
  p.by_groups = FastDivide(p.groups);
  p.by_strips = FastDivide(p.strips);
  p.by_segments = FastDivide(p.segments);
  p.by_row_strips = FastDivide(row_strips);
  return p;
}

// What blocks take, in cycles.
struct Cycles {
  double tile, x;  // of what is multiplied, and of what comes for it
  double weights;  // before the first one
};
Cycles cycles_of(const Params& p, const Choice& choice) {
  const int eights = eights_of(choice.row);
  const double instruction = std::max(eights * 4 * kTensorTime, 16. + eights * 2),
               product = p.slices * p.teams * instruction,
               multiply = p.chunks * (product + (p.slices == kMostSlices ? 0 : kShallow)),
               tile = multiply + kTile + kTileEight * eights * p.teams,
               x = p.chunks * p.stage_bytes / kArriving,
               weights = p.chunks * p.weight_bytes / kArriving;
  return {tile, x, std::max(0., weights + x - tile)};
}
// Of words the tensor core reads its columns from shared memory for each instruction, where lanes fetch pixels that have come there.
Cycles cycles_of_words(const Params& p, const Choice& choice) {
  const int columns = columns_of(choice.row);
  const double shared = 32 * (columns + 2 * kRows) / kSharedBytes,
               instruction = std::max(columns / 2 * kTensorTime, shared),
               product = p.slices * std::max(p.teams * instruction, kChain),
               multiply = p.chunks * (product + (p.slices == kMostSlices ? 0 : kWordsShallow)),
               tile = multiply + kTile + kTileColumn * columns * p.teams;
  return {tile, p.chunks * p.stage_bytes / kWordArriving * (p.width % 8 ? kBetween : 1),
          p.chunks * p.weight_bytes / kWordsLaid + kLaying};
}

double predict(const Problem& problem, const Device& device, const Params& p,
               const Choice& choice) {
  const double tiles = p.segment_rows + (p.segments > 1),
               blocks = std::min(p.walkers, device.sm_count), rounds = std::ceil(p.items / blocks),
               loads = std::ceil(p.walkers / blocks);
  const Cycles cycles = is_words(problem) ? cycles_of_words(p, choice) : cycles_of(p, choice);
  const double busy_us =
      (rounds * tiles * std::max(cycles.tile, cycles.x) + loads * cycles.weights) / kClock;
  const double memory_us = tensor_bytes(problem) / (kMemoryRate * device.copy_bytes_per_us);
  return kLaunch + std::max(busy_us, memory_us) + kBeside * std::min(busy_us, memory_us);
}

std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason) {
  constexpr int kLeastStages = 3, kMostSegments = 16, kMostRounds = 8;
  std::vector<Candidate<Choice>> found;
  // Blocks that walk items: a multiple of the items of different weights.
  const auto walkers_of = [&](const Params& p) {
    const int kinds = p.row_tiles * p.groups;
    return kinds > device.sm_count ? p.items : std::min(p.items, device.sm_count / kinds * kinds);
  };
  const auto consider = [&](Choice choice) {
    for (int before = 0; choice.segments <= std::min<int64_t>(kMostSegments, problem.h.in);
         ++choice.segments) {
      Params p = shape(problem, choice);
      if (p.segments == before) continue;
      before = p.segments;
      choice.stages = std::min((device.smem_optin - p.shared_bytes) / p.stage_bytes, kMostStages);
      if (choice.stages < kLeastStages) return;
      choice.walkers = walkers_of(p);
      p.walkers = choice.walkers;
      found.push_back({choice, predict(problem, device, p, choice)});
      if (p.items > kMostRounds * device.sm_count) return;
      choice.stages = 0;
    }
  };
  const bool words = is_words(problem);
  int64_t pieces = INT64_MAX;
  for (int row = 0; row < (words ? kColumnWidths : kWidths); ++row) {
    const int64_t before = std::exchange(
        pieces, words ? ceil_div(problem.group_out() * problem.h.kernel, columns_of(row))
                      : ceil_div(problem.w.in, eights_of(row) * 8));
    if (pieces == before) continue;  // wider ones than those before, as many
    const int most = words ? most_teams_of_words(columns_of(row)) : most_teams(eights_of(row));
    for (int teams = 1; teams <= most; ++teams)
      for (const int slices : {kMostSlices, kMostSlices / 2})
        consider({row, teams, slices, 1, 0, 1});
  }
  if (found.empty()) reason = "no room for " + std::to_string(kLeastStages) + " stages";
  return found;
}

Plan plan_of(const Problem& problem, const Candidate<Choice>& candidate) {
  const Choice& c = candidate.choice;
  const Params p = shape(problem, c);
  const auto number = [](int value) { return std::to_string(value); };
  Plan plan;
  plan.row = c.row;
  plan.predicted_us = candidate.predicted_us;
  const int detail[] = {c.teams, c.slices, c.segments, c.stages, c.walkers};
  std::copy(std::begin(detail), std::end(detail), plan.detail);
  const bool words = is_words(problem);
  plan.note = number(c.teams * kRows) +
              (words ? " pixels x " + number(columns_of(c.row)) + " columns"
                     : " rows x " + number(eights_of(c.row) * 8) + " pixels") +
              ", K " + number(c.slices * (words ? kWordSlice : kSlice)) + " x " + number(c.stages) +
              " stages, " + number(p.segments) + " segments, " + number(c.walkers) + " blocks";
  return plan;
}

Choice choice_of(const Plan& plan) {
  const int32_t* const d = plan.detail;
  return {plan.row, d[0], d[1], d[2], d[3], d[4]};
}

std::string refusal(const Problem& problem, const Device& device) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  const Axis &h = problem.h, &w = problem.w;
  if (!device.has_wgmma) return "crimp is for sm_90a";
  if (problem.direction != Direction::fwd) return "crimp is for forward";
  const bool words = is_words(problem);
  if (element_size(problem.dtype) != 2 && !(words && problem.precision == Precision::tf32))
    return "crimp is for fp16, bf16 and TF32";
  if (problem.x_layout != Layout::nchw || problem.y_layout != Layout::nchw ||
      problem.w_layout != Layout::nchw)
    return "crimp is for NCHW";
  if (w.kernel != 1 || w.stride != 1 || w.near_pad != 0 || w.out != w.in)
    return "crimp is for kernels of one column with stride 1 and no padding";
  if ((h.stride != 2 && h.stride != 4 && h.stride != 8) || h.kernel != 2 * h.stride ||
      h.dilation != 1)
    return "crimp is for kernels of two strides of 2, 4 or 8";
  // Outputs that two rows of taps reach, but for the padding.
  if (h.near_pad < 0 || h.near_pad > h.stride || h.out + h.near_pad > (h.in + 1) * h.stride)
    return "rows of y, " + number(h.out) + " of a pad of " + number(h.near_pad) +
           ", are not those of " + number(h.in) + " rows of x";
  if (w.in % (words ? 4 : 8) != 0)
    return "rows of " + number(w.in) + " pixels are no whole " + (words ? "fours" : "eights");
  if (!words && problem.group_out() * h.kernel % 8 != 0)
    return "rows of w, " + number(problem.group_out() * h.kernel) + ", are no whole eights";
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
  p.w = args.w.data;
  p.bias = problem.has_bias ? args.bias : nullptr;
  return p;
}

// y in order of column, row, channel out, group, image.
Maps maps_of(const Problem& problem, const Plan& plan, const Params& p, const Args& args) {
  const bool words = is_words(problem);
  const int64_t width = problem.w.in, y_plane = problem.h.out * width, reduce = problem.group_in();
  const int32_t size = static_cast<int32_t>(element_size(problem.dtype)),
                depth = p.slices * (words ? kWordSlice : kSlice);
  const auto y_map = [&](int pixels, int channels, bool swizzled) {
    return encode({args.y.data,
                   size,
                   5,
                   {width, problem.h.out, p.columns, p.groups, problem.batch},
                   {size, width * size, y_plane * size, y_plane * size * p.columns,
                    y_plane * size * problem.out_channels},
                   {pixels, p.stride, channels, 1, 1},
                   {1, 1, 1, 1, 1},
                   swizzled,
                   false});
  };
  const CUtensorMap x = encode_rows(args.x.data, width, p.x_h, reduce, problem.batch * p.groups,
                                    kLine / size, depth, size);
  if (words) return {x, {}, y_map(kStripWords, p.channels, true), {}};
  const int last = last_eights(eights_of(plan.row)), channels = kWarpLines / p.stride;
  return {x,
          encode_channels(args.w.data, p.columns * problem.h.kernel * 2, reduce, p.groups, 1,
                          kLineNumbers, depth),
          y_map(kLineNumbers, channels, true), y_map(last * 8, channels, is_swizzled(last))};
}

}  // namespace convt2d::cuda::crimp
