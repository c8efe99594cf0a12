#include "cuda/plait/plait_plan.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/floor.h"
#include "cuda/gather_params.h"
#include "cuda/tensor_map.h"

namespace convt2d::cuda::plait {
namespace {

constexpr double kClock = 1700;  // cycles a microsecond

// What things cost, in cycles where nothing else is said; counted where the machine says so, the others fitted to what was
// measured with four warps that bring, stores of words and halves to 108 plans of 44 layers with eight (2026-11-25, 9 %
// root mean square).
constexpr double kLaunch = 4.2;        // us
constexpr double kFirst = 1000;        // until the first chunk is there
constexpr double kMultiply = 128;      // an instruction
constexpr double kMultiplyReads = 80;  // of it, of shared memory: 2 KB of weights, 8 KB of columns
constexpr double kRowIssue = 110;      // instructions of a row of a warp
constexpr double kWordIssue = 15.7;    // and for each word of it
constexpr double kMoveIssue = 0.5;     // and if words are to be moved by a number that is not known
constexpr double kIssue = 1.4;         // instructions a cycle of all schedulers
constexpr double kShared = 1.15;  // what passes through shared memory, against 128 bytes a cycle
constexpr double kStoreVectors = 400;  // of a tile, both warpgroups
constexpr double kStoreWords = 6000;
constexpr double kStoreHalves = 9000;
constexpr double kLevel2 = 40;  // bytes a cycle of a multiprocessor
// What is measured over that, by those plans: rows that eight warps write out, rows that the copy engine brings.
constexpr double kWritten = 0.6, kCopied = 0.72;
constexpr double kMemoryRate = 0.8;  // of the copy rate
constexpr double kBeside = 0.5;      // of the lesser of work and bytes

struct Choice {
  int form, stages, walkers;
};

int kind_of(const Problem& problem) {
  const Axis& w = problem.w;
  const int lead = w.out % kEight == 0 ? int((kEight - w.near_pad % kEight) % kEight) : -1;
  for (int kind = 0; kind < kTapKinds; ++kind) {
    const Taps taps = kTaps[kind];
    if (taps.kernel == w.kernel && (taps.step == w.stride || w.in == 1) &&
        (taps.lead < 0 || taps.lead == lead))
      return kind;
  }
  return -1;
}

bool may_pair(const Problem& problem) {
  const Axis &h = problem.h, &w = problem.w;
  return h.kernel == kPairedTaps && w.kernel == kPairedTaps && h.stride == kPairedStep &&
         w.stride == kPairedStep && h.dilation == 1 && w.in % kBlock == 0 &&
         h.in % kPairedRows == 0;
}

// Kernels one wide, in rows of whole 16 bytes.
bool may_copy(const Problem& problem) {
  const Axis &h = problem.h, &w = problem.w;
  return w.kernel == 1 && w.stride == 1 && w.near_pad == 0 && w.out % kEight == 0 &&
         (h.kernel == 1 || h.dilation == 1) && h.kernel <= kDepth && kDepth % h.kernel == 0;
}
// Planes under kernels of one tap are rows.
bool is_flat(const Problem& problem) {
  const Axis &h = problem.h, &w = problem.w;
  return h.kernel == 1 && w.kernel == 1 && h.stride == 1 && w.stride == 1 && h.near_pad == 0 &&
         w.near_pad == 0 && h.in == h.out && w.in == w.out;
}

// Everything that follows from the problem and the choice, pointers aside.
void shape(const Problem& problem, const Choice& choice, Params& p) {
  const Axis &h = problem.h, &w = problem.w;
  p = {};
  set_extents(problem, p);
  set_geometry(problem, p);
  p.x_h = static_cast<int32_t>(h.in);
  p.x_w = static_cast<int32_t>(w.in);
  if (is_flat(problem)) {
    p.x_w = p.y_w = p.x_w * p.x_h;
    p.x_h = p.y_h = 1;
  }
  p.kind = kind_of(problem);
  p.copied = may_copy(problem);
  p.form = choice.form;
  p.sets = choice.form == kWide ? 2 : 1;
  p.halves = choice.form == kTwice ? 2 : 1;
  p.turns = choice.form == kTurns;
  p.column_tiles = static_cast<int32_t>(ceil_div(p.columns, tile_channels(p)));
  constexpr int kBlockEights = kBlock / kEight;
  auto row_eights = static_cast<int32_t>(ceil_div(p.x_w, kEight));
  if (p.copied) row_eights = static_cast<int32_t>(round_up(row_eights, kBlockEights));
  p.strip_eights = row_eights % kBlockEights == 0 ? kBlockEights : row_eights;
  p.strips = row_eights / p.strip_eights;
  p.eights = p.batch * p.x_h * row_eights;
  p.paired = may_pair(problem);
  p.block_bytes = p.paired ? kAtomBytes : kBlockBytes;
  p.slice_bytes = p.paired ? kPairedSlice : 2 * kAtomBytes;
  p.half_bytes = p.paired ? kPairedChannels * kPairedSlice : kHalfBytes;
  p.tiles = static_cast<int32_t>(ceil_div(p.eights, tile_eights(p)));
  p.walkers = std::min(choice.walkers, p.tiles);
  p.depth = p.reduce * p.kernel_h * p.kernel_w;
  p.chunks = static_cast<int32_t>(ceil_div(p.depth, kDepth));
  p.vectors = static_cast<int32_t>(problem.batch * problem.out_channels * h.out * w.out / kEight);
  p.store_vectors = p.x_w % kEight == 0;
  p.store_words = p.x_w % 2 == 0;
  p.by_strip_eights = FastDivide(p.strip_eights);
  p.by_strips = FastDivide(p.strips);
  p.by_x_h = FastDivide(p.x_h);
  p.by_kernel_h = FastDivide(p.kernel_h);
  p.stages = choice.stages;
}

// Places in shared memory, with weights that stay or not.
void place(bool resident, int stages, Params& p) {
  p.resident = resident;
  p.stages = stages;
  p.stage_bytes = p.halves * p.half_bytes + (resident ? 0 : weight_bytes(p));
  SharedPlaces places{kHeader};
  p.weights_at = places.take(resident ? int64_t{p.chunks} * weight_bytes(p) : 0, kAtomBytes);
  p.stages_at = places.take(int64_t{stages} * p.stage_bytes, kAtomBytes);
  p.shared_bytes = static_cast<int32_t>(places.end);
}

double predict(const Problem& problem, const Device& device, const Params& p) {
  const Taps taps = kTaps[p.kind];
  // Of a chunk: rows of warps, and what they ask of the first cache and of shared memory. What two kernel rows read comes
  // once, where they are of one tile.
  const double rows =
      (p.paired ? kPairedChannels * kPairs / 2.0 : double(kDepth) / taps.kernel) * p.halves;
  const double vectors = taps.lead >= 0 ? vectors_of(taps) : (span_of(taps) + 3.5) / kEight + 0.5;
  const double lines = std::max(4, 4 * taps.step) + 2 * p.paired;
  const int owners = p.turns ? 1 : kGroups;
  const double slices = double(depth_multiplied(p)) / p.chunks / kSlice;
  const double shared =
      kShared * (slices / 4 * (p.copied ? rows * 4 : rows * (vectors * lines + 4 * taps.kernel)) +
                 owners * slices * kMultiplyReads + (p.resident ? 0 : weight_bytes(p) / 128.0));
  const double issue = (p.copied ? 0 : slices / 4 * rows) *
                       (kRowIssue + (taps.lead < 0 ? kMoveIssue : 0) * words_of(taps) +
                        kWordIssue * (words_of(taps) + 2 * taps.kernel)) /
                       kIssue;
  const double level2 =
      ((p.resident ? 0 : weight_bytes(p)) + slices / 4 * rows * 512 * taps.step * 0.8) / kLevel2;
  const double tensor = owners * slices * kMultiply;
  double chunk = 0;
  for (const double cost : {tensor, shared, issue, level2}) chunk += std::pow(cost, 5);
  chunk = std::pow(chunk, 0.2);
  const double store = p.store_vectors ? kStoreVectors : p.store_words ? kStoreWords : kStoreHalves;
  const double tile = p.turns ? std::max(p.chunks * chunk, (p.chunks * tensor + store) / 2)
                              : p.chunks * chunk + store;
  const double waves = std::ceil(double(blocks_of(p)) / device.sm_count);
  const double tiles = std::ceil(double(p.tiles) / p.walkers);
  const double busy_us = (p.copied ? kCopied : kWritten) * waves *
                         (kFirst + tiles * tile + (p.turns ? store : 0)) / kClock;
  const double memory_us = tensor_bytes(problem) / (kMemoryRate * device.copy_bytes_per_us);
  return kLaunch + std::max(busy_us, memory_us) + kBeside * std::min(busy_us, memory_us);
}

std::string refusal(const Problem& problem, const Device& device) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  const Axis &h = problem.h, &w = problem.w;
  if (!device.has_wgmma) return "no wgmma (sm_90a)";
  if (problem.direction != Direction::grad_input) return "plait is for grad_input";
  if (element_size(problem.dtype) != 2) return "plait is for 16 bits";
  if (problem.x_layout != Layout::nchw || problem.y_layout != Layout::nchw ||
      problem.w_layout != Layout::nchw)
    return "plait is for NCHW";
  if (problem.wide_index) return "a tensor has more than 2^31 elements";
  if (kind_of(problem) < 0)
    return "kernel rows of " + number(w.kernel) + " with stride " + number(w.stride) +
           " are none of those that are written out";
  if (w.dilation != 1) return "plait takes kernel rows without dilation";
  const int64_t depth = problem.group_out() * h.kernel * w.kernel;
  if (depth % kEight != 0)
    return number(depth) + " weights of an input channel are no whole 16 bytes";
  if (problem.batch * problem.out_channels * h.out * w.out % kEight != 0)
    return "the output's gradient is no whole 16 bytes";
  // Pixels of rows that are not there are counted too, if not read.
  const int64_t beside = (h.kernel * h.dilation + h.near_pad + h.stride) * w.out + 64;
  if (std::abs(h.near_pad) > 1 << 12 || std::abs(w.near_pad) > 1 << 12 ||
      problem.batch * problem.out_channels * h.out * w.out + beside * 2 > INT32_MAX ||
      problem.batch * problem.in_channels * h.in * w.in > INT32_MAX / 2 * 2 ||
      problem.batch * h.in * (w.in + kBlock) > INT32_MAX - 1024 || depth > 1 << 24)
    return "sizes are too large";
  return {};
}

std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason) {
  std::vector<Candidate<Choice>> found;
  for (int form = 0; form < kForms; ++form) {
    Params p;
    shape(problem, {form, 2, INT32_MAX}, p);
    if (form == kWide && p.columns <= kRows) continue;
    bool fits = false;
    int stages = 0;
    bool resident = false;
    for (const bool stay : {true, false}) {
      if (form == kTurns && !stay) continue;
      for (stages = kMostStages; stages >= (stay ? 3 : 2); --stages) {
        place(stay, stages, p);
        fits = p.shared_bytes <= device.smem_optin;
        if (fits) break;
      }
      resident = stay;
      if (fits) break;
    }
    if (!fits) {
      reason = "weights of " + std::to_string(p.depth) + " numbers do not stay";
      continue;
    }
    const Choice choice = {form, resident ? -stages : stages,
                           std::max(1, device.sm_count / (p.groups * p.column_tiles))};
    shape(problem, choice, p);
    place(resident, stages, p);
    found.push_back({choice, predict(problem, device, p)});
  }
  return found;
}

Params shape_of(const Problem& problem, const Choice& choice) {
  Params p;
  shape(problem, choice, p);
  place(choice.stages < 0, std::abs(choice.stages), p);
  return p;
}

Plan plan_of(const Problem& problem, const Candidate<Choice>& candidate) {
  const Choice& c = candidate.choice;
  const Params p = shape_of(problem, c);
  Plan plan;
  plan.row = c.form;
  plan.predicted_us = candidate.predicted_us;
  const int detail[] = {c.stages, c.walkers};
  std::copy(std::begin(detail), std::end(detail), plan.detail);
  plan.note = std::to_string(tile_channels(p)) + " channels x " +
              std::to_string(tile_eights(p) * kEight) + " positions" +
              (p.turns ? " by turns" : "") + ", rows of " + std::to_string(kTaps[p.kind].kernel) +
              " taps " + (p.copied ? "copied" : "written out") + (p.paired ? " in pairs, " : ", ") +
              std::to_string(p.stages) + " stages, weights " + (p.resident ? "stay" : "come") +
              ", " + std::to_string(blocks_of(p)) + " blocks";
  return plan;
}

}  // namespace

std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason) {
  return all_plans(problem, device, reason, refusal, candidates, plan_of);
}
Decision plan(const Problem& problem, const Device& device) {
  return best_plan(problem, device, refusal, candidates, plan_of);
}

Params params_of(const Problem& problem, const Plan& plan, const Args& args) {
  Params p = shape_of(problem, {plan.row, plan.detail[0], plan.detail[1]});
  set_tensors(problem, args, p);
  return p;
}

int64_t blocks_of(const Params& p) { return int64_t{p.groups} * p.column_tiles * p.walkers; }

// Weights as a matrix [input channel][K]; dY as it is, of which a box has the rows that taps of 64 of K read.
Maps maps_of(const Params& p) {
  Maps maps{};
  const int64_t row = int64_t{p.depth} * 2, rows = int64_t{p.groups} * p.columns;
  maps.weight = encode({p.weight,
                        2,
                        4,
                        {p.depth, rows, 1, 1},
                        {2, row, row * rows, row * rows},
                        {kDepth, tile_channels(p), 1, 1},
                        {1, 1, 1, 1}});
  if (!p.copied) return maps;
  const int64_t line = int64_t{p.y_w} * 2, plane = line * p.y_h, all = int64_t{p.groups} * p.reduce;
  maps.source = encode({p.source,
                        2,
                        4,
                        {p.y_w, p.y_h, all, p.batch},
                        {2, line, plane, plane * all},
                        {kBlock, p.kernel_h, kDepth / p.kernel_h, 1},
                        {1, 1, 1, 1}});
  return maps;
}

}  // namespace convt2d::cuda::plait
