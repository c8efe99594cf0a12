#include "cuda/quilt/quilt_plan.h"

#include <algorithm>
#include <cmath>

#include "core/phases.h"
#include "cuda/cuda_families.h"
#include "cuda/gather_params.h"
#include "cuda/strict_sums.h"
#include "cuda/tensor_map.h"
#include "cuda/weight_cost.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda::quilt {
namespace {

// Fitted to 236 plans of 17 layers and modes, 2026-11-29, an H200: measured / predicted is 0.93 to 1.06 of what is chosen,
// which is the best or 1.02 of it. What is brought, moved and kept in shared memory was not seen to be waited for.
constexpr double kClock = 1700;        // cycles a microsecond
constexpr double kLaunch = 5.5;        // us
constexpr double kBlock = 3310;        // cycles of a block beside its chunks
constexpr double kStored = 65;         // a sum of each thread, on its way out
constexpr double kChunk = 785;         // of a chunk, beside what follows
constexpr double kTensorTime = 0.466;  // of what a multiplication takes at best: half hides
constexpr double kBatch = 156;         // what is fetched at once,
constexpr double kHalves = 61;         // and a step of a warpgroup: pairs put together,
constexpr double kWordsFetched = 33;   // words as they are,
constexpr double kSplit = 74;          // or split
constexpr double kMemoryRate = 0.85;   // of the copy rate
constexpr double kBeside = 0.07;       // of the lesser of work and bytes,
constexpr double kFewStages = 0.2;     // with two stages: what comes waits for what is multiplied
constexpr double kSum = 5.3;           // us, the second pass,
constexpr double kPartialRate = 1.5;   // and times the copy rate's time

constexpr int64_t kMostRun = 256 << 10;  // bytes of dY: a place in it is 16 bits, in eighths
constexpr int64_t kBoxWords = 256;       // at most

struct Choice {
  int row, chunk_rows, stages, split;
};

int64_t combinations(const Params& p) { return int64_t{p.groups} * p.row_blocks * p.column_blocks; }
int64_t chunks_of(const Params& p) { return int64_t{p.batch} * p.image_chunks; }

// Everything but pointers. Returns why it cannot be done, or an empty string.
std::string shape(const Problem& problem, const Choice& choice, Params& p) {
  const Tile tile = kTiles[choice.row];
  const Axis &h = problem.h, &w = problem.w;
  const int64_t size = static_cast<int64_t>(element_size(problem.dtype));
  // Strict fp32 takes two at once.
  const auto steps_of = [&](int64_t rows) {
    return static_cast<int32_t>(
        round_up(ceil_div(rows * w.in * size, kStep), tile.strict ? at_once(tile) : 1));
  };
  p = {};
  set_weight_extents(problem, p);
  p.kernel_h = static_cast<int32_t>(h.kernel);
  p.y_row = static_cast<int32_t>(w.out);
  p.y_plane = static_cast<int32_t>(h.out * w.out);
  p.channels = 8 * bands(tile) / p.kernel_h;
  p.row_blocks = static_cast<int32_t>(ceil_div(p.rows, tile.width));
  p.column_blocks = static_cast<int32_t>(ceil_div(p.columns, p.channels));
  p.chunk_rows = choice.chunk_rows;
  p.image_chunks = static_cast<int32_t>(ceil_div(h.in, choice.chunk_rows));
  p.last_rows = static_cast<int32_t>(h.in - (p.image_chunks - 1) * choice.chunk_rows);
  p.steps = steps_of(p.chunk_rows);
  p.last_steps = steps_of(p.last_rows);
  if (p.steps > kMostSteps) return "rows of " + std::to_string(w.in) + " pixels are too long";
  const int64_t run = h.kernel * w.out * size;
  p.run_bytes = static_cast<int32_t>(run);
  // As few bytes as can be, in boxes whose rows lie apart as they should.
  const int64_t words = round_up(run * p.chunk_rows, kSector) / 4,
                residue = pitch_residue(tile) / 4;
  const auto box_words = [&](int64_t boxes) {
    return round_up(std::max(ceil_div(words, boxes) - residue, int64_t{0}), 32) + residue;
  };
  int64_t boxes = ceil_div(words, kBoxWords);
  while (box_words(boxes) > kBoxWords) ++boxes;
  for (int64_t more = boxes + 1; more < boxes + 3; ++more)
    if (box_words(more) * more < box_words(boxes) * boxes) boxes = more;
  p.y_boxes = static_cast<int32_t>(boxes);
  p.y_pitch = static_cast<int32_t>(box_words(boxes) * 4);
  p.y_box_bytes = p.channels * p.y_pitch;
  if (int64_t{p.y_boxes} * p.y_box_bytes > kMostRun)
    return "rows of " + std::to_string(w.out) + " numbers of dY are too long";
  // What is moved, and up to 16 bytes before it: an odd number of 16 bytes, so that lanes meet no bank twice.
  p.raw_pitch = (2 * p.steps + 1) * 16;
  p.raw_bytes = tile.width * p.raw_pitch;
  p.y_at = x_bytes(tile, p.steps);
  p.stage_bytes = static_cast<int32_t>(round_up(p.y_at + p.y_boxes * p.y_box_bytes, 1024));
  p.table_bytes = p.steps * kStep;
  p.stages_at =
      static_cast<int32_t>(round_up(kTablesAt + kTableSets * p.kernel_h * p.table_bytes, 1024));
  p.stages = choice.stages;
  p.split = choice.split;
  p.by_width = FastDivide(p.x_w);
  p.by_pitch = FastDivide(p.y_pitch);
  p.by_words = FastDivide(p.steps * kWords);
  return {};
}

double predict(const Problem& problem, const Device& device, const Params& p, Tile tile) {
  const double size = static_cast<double>(element_size(problem.dtype));
  const double products = tile.strict ? 3 : 1;
  // Of a chunk, on average over an image's.
  const auto average = [&](double count, double of_last) {
    return ((p.image_chunks - 1.0) * count + of_last) / p.image_chunks;
  };
  const double steps = average(p.steps, p.last_steps);
  const double batches =
      average(ceil_div(p.steps, at_once(tile)), ceil_div(p.last_steps, at_once(tile)));
  const double mma = steps * kGroups * kInstructions * products * tile.width / 2.0 * kTensorTime;
  const double fetch = steps * kGroups *
                       (tile.strict ? kSplit
                        : size == 2 ? kHalves
                                    : kWordsFetched);
  const double cycles = kChunk + mma + fetch + kBatch * batches;
  const double blocks = double(combinations(p)) * p.split;
  const double chunks = std::ceil(double(chunks_of(p)) / p.split);
  const double busy_us = std::ceil(blocks / device.sm_count) *
                         (kBlock + kStored * tile.width + chunks * cycles) / kClock;
  return weight_us(problem, device, p.split, busy_us,
                   {kLaunch, kMemoryRate, p.stages < 3 ? kFewStages : kBeside, kSum, kPartialRate});
}

int stages_on(const Device& device, const Params& p) {
  return std::min((device.smem_optin - p.stages_at - kRaws * p.raw_bytes) / p.stage_bytes,
                  kMostStages);
}

// Every tile that fits, in no order: the same for all devices. `reason` says why there is none.
std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason) {
  std::vector<Candidate<Choice>> found;
  const int first = is_strict(problem) ? kTileCount : 0;
  const int end = is_strict(problem) ? kTileCount + kStrictTileCount : kTileCount;
  int64_t chunks_before = 0;
  const int64_t row_bytes = problem.w.in * static_cast<int64_t>(element_size(problem.dtype));
  for (int64_t rows = 1; rows <= problem.h.in; ++rows) {
    if (rows > 1 && rows * row_bytes > kMostSteps * kStep)
      break;  // too many steps, of more rows too
    const int64_t chunks = ceil_div(problem.h.in, rows);
    if (chunks == chunks_before) continue;  // of fewer rows
    chunks_before = chunks;
    for (int row = first; row < end; ++row) {
      if (kTiles[row].taps != problem.w.kernel) continue;
      Choice choice{row, static_cast<int>(rows), 2, 1};
      Params p;
      if (std::string why = shape(problem, choice, p); !why.empty()) {
        if (rows == 1) reason = why;
        continue;
      }
      choice.stages = p.stages = stages_on(device, p);
      if (p.stages < 2) {
        if (rows == 1) reason = "a chunk takes " + std::to_string(p.stage_bytes) + " bytes";
        continue;
      }
      const int64_t combos = combinations(p), all = chunks_of(p);
      if (combos > INT32_MAX || all > INT32_MAX) {
        reason = "dW or x has too many tiles";
        continue;
      }
      for (int split : splits_worth_trying(problem, combos, all, rows * problem.w.in)) {
        p.split = choice.split = split;
        found.push_back({choice, predict(problem, device, p, kTiles[row])});
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
  plan.detail[0] = choice.stages;
  plan.detail[1] = choice.chunk_rows;
  plan.note = std::to_string(p.channels) + " x " + std::to_string(tile.width) + " channels, " +
              std::to_string(p.chunk_rows) + " rows of " + std::to_string(p.x_w) + " pixels in " +
              std::to_string(p.steps) + " steps, " + std::to_string(p.stages) + " stages, split " +
              std::to_string(p.split) + ", " + std::to_string(blocks_of(p)) + " blocks";
  return plan;
}

std::string refusal(const Problem& problem, const Device& device) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  const Axis &h = problem.h, &w = problem.w;
  if (!device.has_wgmma) return "quilt is for sm_90a";
  if (problem.direction != Direction::grad_weight) return "quilt is for grad_weight";
  if (problem.dtype == DType::f64) return "quilt is for fp16, bf16 and fp32";
  if (problem.x_layout != Layout::nchw || problem.y_layout != Layout::nchw ||
      problem.w_layout != Layout::nchw)
    return "quilt is for NCHW";
  if (w.kernel != 2 && w.kernel != 4) return "rows of " + number(w.kernel) + " taps, not 2 or 4";
  const Tile tile = kTiles[w.kernel == 4 ? 0 : 2];
  if (bands(tile) % (h.kernel * warp_bands(tile)) != 0)
    return number(h.kernel) + " kernel rows do not share out " + number(bands(tile));
  for (const Axis& axis : {h, w}) {
    if (axis.stride != axis.kernel || axis.near_pad != 0 || axis.out != axis.in * axis.kernel)
      return "dY is not patches of " + number(axis.kernel) + " side by side";
    if (axis.dilation != 1 && axis.kernel > 1)
      return "taps lie " + number(axis.dilation) + " apart";
  }
  const int64_t size = static_cast<int64_t>(element_size(problem.dtype));
  if (h.kernel * w.out * size % 16 != 0)
    return "what a row of pixels meets, " + number(h.kernel * w.out * size) +
           " bytes, is no whole vectors";
  if (size == 2 && w.kernel == 2 && w.in % 2 != 0)
    return "rows of " + number(w.in) + " pixels are no pairs";
  if (problem.wide_index) return "a tensor has more than 2^31 elements";
  // Where a chunk starts in a plane is told in bytes.
  if (h.in * w.in * size > INT32_MAX)
    return "planes of x, " + number(h.in * w.in * size) + " bytes, are too large";
  return sums_too_short(problem, kLeastWgmmaTerms);
}

}  // namespace

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
  shape(problem, {plan.row, plan.detail[1], plan.detail[0], plan.split}, p);
  set_weight_tensors(args, p);
  const int64_t size = static_cast<int64_t>(element_size(problem.dtype));
  const int64_t plane = problem.h.in * problem.w.in * size;
  for (int64_t i = 0; i < classes(int(size)); ++i)
    p.lead[i] = static_cast<int32_t>((reinterpret_cast<uintptr_t>(p.x) + i * plane) % 16 / size);
  return p;
}

// Each has channels that start alike, from the multiple of 16 bytes before the first one on, in words.
Maps maps_of(const Problem& problem, const Plan& plan, const Params& p) {
  const int64_t size = static_cast<int64_t>(element_size(problem.dtype));
  const int64_t alike = classes(int(size)), plane = problem.h.in * problem.w.in * size;
  const int64_t channels = problem.batch * problem.in_channels;
  const bool rounded = problem.precision == Precision::tf32 && size == 4;
  constexpr int64_t kAnyStep = 16;  // of axes of one element
  Maps maps;
  for (int64_t i = 0; i < alike; ++i) {
    if (i >= channels) {
      maps.x[i] = maps.x[0];
      continue;
    }
    const int64_t before = p.lead[i] * size;
    maps.x[i] =
        encode({static_cast<const char*>(p.x) + i * plane - before,
                4,
                4,
                {ceil_div(plane + before, 4), ceil_div(channels - i, alike), 1, 1},
                {4, alike * plane, kAnyStep, kAnyStep},
                {p.raw_pitch / 4, static_cast<int32_t>(kTiles[plan.row].width / alike), 1, 1},
                {1, 1, 1, 1},
                false,
                rounded});
  }
  const int64_t y_plane = int64_t{p.y_plane} * size;
  maps.y = encode({p.y,
                   4,
                   4,
                   {y_plane / 4, problem.batch * problem.out_channels, 1, 1},
                   {4, y_plane, kAnyStep, kAnyStep},
                   {p.y_pitch / 4, p.channels, 1, 1},
                   {1, 1, 1, 1},
                   false,
                   rounded});
  return maps;
}

}  // namespace convt2d::cuda::quilt
