#include "cuda/braid/braid_plan.h"

#include <algorithm>
#include <cmath>

#include "core/phases.h"
#include "cuda/cuda_families.h"
#include "cuda/gather_params.h"
#include "cuda/strict_sums.h"
#include "cuda/tensor_map.h"
#include "cuda/weight_cost.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda::braid {
namespace {

// Counted, and fitted to the times of 600 plans of 15 layers: of a layer's plans the one with the least prediction took 1.004 times
// what the fastest took (H200, 2026-11-30).
constexpr double kClock = 1700;       // cycles a microsecond
constexpr double kLaunch = 5.5;       // us
constexpr double kBlock = 3300;       // cycles of a block beside its chunks
constexpr double kStored = 16;        // of a warpgroup's slab and an input channel, on the way out
constexpr double kCopied = 48;        // bytes a cycle that come from L2
constexpr double kCopiedRow = 3;      // cycles of a row of a box, however short, or of no tensor
constexpr double kChunk = 60;         // cycles of a chunk, beside the larger of both
constexpr double kFetched = 8;        // of a slice of a slab whose words are fetched, not hidden
constexpr double kMemoryRate = 0.85;  // of the copy rate
constexpr double kBeside = 0.1;       // of the lesser of work and bytes
constexpr double kSum = 3;            // us, the second pass,
constexpr double kPartialRate = 3;    // and times the copy rate's time

constexpr int64_t kBoxNumbers = 256;  // along a row, at most
constexpr int kBanks = 32;
// What is copied fast starts at multiples of so many bytes, in memory as in shared memory (TensorBox).
constexpr int64_t kSector = 32;
constexpr double kSkewed = 1.25;  // as long, of rows of which every second one does not

struct Choice {
  int row, stages, split;
};

bool is_wide(const Problem& problem) { return problem.w.kernel > 1; }
const Axis& axis_of_taps(const Problem& problem) {
  return is_wide(problem) ? problem.w : problem.h;
}
int64_t size_of(const Problem& problem) {
  return static_cast<int64_t>(element_size(problem.dtype));
}
int64_t combinations(const Params& p) { return int64_t{p.groups} * p.row_tiles * p.sum_tiles; }

// The output channels of a slab, whose taps are whole fours of rows; 0 if there are none.
int64_t channels_of_slab(int64_t taps) {
  int64_t channels = kSlab / taps;
  while (channels * taps % 4 != 0) --channels;
  return channels;
}

// Numbers that a box of dY has before the first tap, since it starts with a sector.
int64_t lead_of(const Problem& problem) {
  const int64_t pad = problem.w.near_pad;
  return round_up(pad, kSector / size_of(problem)) - pad;
}

// Bytes from channel to channel of dY, of so many pixels of x. Eight lanes read a tap each, or two in 16 bits, of one channel
// or of several: these are as far apart as the banks that the lanes of one meet.
int64_t pitch_of(const Problem& problem, int64_t positions) {
  const int64_t size = size_of(problem), taps = problem.w.kernel;
  const int64_t words =
      ceil_div((lead_of(problem) + (positions - 1) * problem.w.stride + taps) * size, 4);
  const int64_t lanes = taps * size / 4;
  if (lanes >= 8) return round_up(words * 4, kSector);
  const int64_t apart = lanes * kBanks / 8;
  return (round_up(std::max<int64_t>(words - apart, 0), kBanks) + apart) * 4;
}
// Parts of a line's dY: as few as a box has room for; 0 if none will do.
int64_t parts_of(const Problem& problem) {
  const int64_t size = size_of(problem);
  for (int64_t parts = 1; parts <= kSlices; parts *= 2)
    if (pitch_of(problem, kLine / size / parts) <= kBoxNumbers * size) return parts;
  return 0;
}

// Everything but pointers.
Params shape(const Problem& problem, const Choice& choice) {
  const Tile tile = kTiles[choice.row];
  const Axis &h = problem.h, &w = problem.w, &taps = axis_of_taps(problem);
  const int64_t size = size_of(problem), numbers = kLine / size;
  Params p{};
  set_weight_extents(problem, p);
  p.y_h = static_cast<int32_t>(h.out);
  p.y_w = static_cast<int32_t>(w.out);
  p.taps = static_cast<int32_t>(taps.kernel);
  p.step_h = static_cast<int32_t>(h.stride);
  p.step_w = static_cast<int32_t>(w.stride);
  p.pad_h = static_cast<int32_t>(h.near_pad);
  p.pad_w = static_cast<int32_t>(w.near_pad);
  p.sums = p.columns * p.taps;
  p.channels = static_cast<int32_t>(channels_of_slab(taps.kernel));
  p.sum_tiles = static_cast<int32_t>(ceil_div(p.columns, block_slabs(tile) * p.channels));
  p.row_tiles = static_cast<int32_t>(ceil_div(p.rows, tile.width));
  p.lines = static_cast<int32_t>(ceil_div(w.in, numbers));
  p.last_slices = static_cast<int32_t>(ceil_div((w.in - (p.lines - 1) * numbers) * size, kSlice));
  p.chunks = static_cast<int32_t>(problem.batch * h.in * p.lines);
  int64_t y_bytes = block_slabs(tile) * kSlab * kLine;
  if (tile.wide) {
    p.parts = static_cast<int32_t>(parts_of(problem));
    p.part_positions = static_cast<int32_t>(numbers / p.parts);
    p.lead = static_cast<int32_t>(lead_of(problem));
    p.pitch = static_cast<int32_t>(pitch_of(problem, p.part_positions));
    p.part_bytes = static_cast<int32_t>(round_up(block_slabs(tile) * p.channels * p.pitch, 128));
    const int slices = kSlices / p.parts;  // of a part
    for (int s = 0; s < kSlices; ++s)
      p.slice_at[s] =
          static_cast<int32_t>(s / slices * p.part_bytes + s % slices * kSlice * w.stride);
    y_bytes = p.parts * p.part_bytes;
  }
  p.stage_bytes = static_cast<int32_t>(round_up(x_bytes(tile) + y_bytes, 1024));
  p.stages = choice.stages;
  p.split = choice.split;
  p.by_lines = FastDivide(p.lines);
  p.by_rows = FastDivide(p.x_h);
  return p;
}

double predict(const Problem& problem, const Device& device, const Params& p, Tile tile) {
  const double slices =
      ((p.lines - 1.0) * kSlices + p.last_slices) / p.lines;  // of a chunk, on average
  const double mma = slices * block_slabs(tile) * (tile.width / 2.0 + (tile.wide ? kFetched : 0));
  const double line = std::min<double>(p.x_w * size_of(problem), p.lines * kLine) / p.lines;
  const double y_row = tile.wide ? double(p.parts) * p.pitch / p.taps : line;
  const auto skewed = [&](int row) { return row * size_of(problem) % kSector ? kSkewed : 1; };
  const double x_rows = std::min(tile.width, p.rows),
               y_rows = std::min(block_rows(p, tile), p.sums);
  const double copied =
      std::max((x_rows * line * skewed(p.x_w) + y_rows * y_row * skewed(p.y_w)) / kCopied,
               (tile.width + (tile.wide ? 0 : block_rows(p, tile))) * kCopiedRow);
  const double chunks = std::ceil(double(p.chunks) / p.split);
  const double blocks = double(combinations(p)) * p.split;
  const double cycles =
      kBlock + kStored * tile.width * block_slabs(tile) + chunks * (std::max(mma, copied) + kChunk);
  return weight_us(problem, device, p.split, std::ceil(blocks / device.sm_count) * cycles / kClock,
                   {kLaunch, kMemoryRate, kBeside, kSum, kPartialRate});
}

// Every tile that fits, in no order: the same for all devices. `reason` says why there is none.
std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason) {
  std::vector<Candidate<Choice>> found;
  for (int row = 0; row < kTileCount; ++row) {
    const Tile tile = kTiles[row];
    if (tile.wide != is_wide(problem)) continue;
    Choice choice{row, 0, 1};
    Params p = shape(problem, choice);
    choice.stages = p.stages = std::min((device.smem_optin - kHeader) / p.stage_bytes, kMostStages);
    if (p.stages < 2) {
      reason = "a line takes " + std::to_string(p.stage_bytes) + " bytes";
      continue;
    }
    const int64_t combos = combinations(p);
    if (combos > INT32_MAX) {
      reason = "dW has too many tiles";
      continue;
    }
    const int64_t pixels = kLine / size_of(problem);
    for (int split : splits_worth_trying(problem, combos, p.chunks, pixels)) {
      p.split = choice.split = split;
      found.push_back({choice, predict(problem, device, p, tile)});
    }
  }
  return found;
}

Plan plan_of(const Problem& problem, const Device& device, const Choice& choice) {
  const Tile tile = kTiles[choice.row];
  const Params p = shape(problem, choice);
  Plan plan = weight_sum_plan(problem, device, choice.row, choice.split,
                              predict(problem, device, p, tile), kLaunch);
  plan.detail[0] = choice.stages;
  plan.note = (tile.wide ? "wide, " : "tall, ") + std::to_string(block_rows(p, tile)) + " taps x " +
              std::to_string(tile.width) + " channels, " + std::to_string(p.stages) +
              " stages, split " + std::to_string(p.split) + ", " + std::to_string(blocks_of(p)) +
              " blocks";
  return plan;
}

std::string refusal(const Problem& problem, const Device& device) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  const Axis &h = problem.h, &w = problem.w;
  if (!device.has_wgmma) return "braid is for sm_90a";
  if (problem.direction != Direction::grad_weight) return "braid is for grad_weight";
  if (problem.dtype == DType::f64 || is_strict(problem)) return "braid is for 16 bits and TF32";
  if (problem.x_layout != Layout::nchw || problem.y_layout != Layout::nchw ||
      problem.w_layout != Layout::nchw)
    return "braid is for NCHW";
  if ((h.kernel > 1) == (w.kernel > 1))
    return "taps, " + number(h.kernel) + " x " + number(w.kernel) + ", lie along no single axis";
  const Axis& taps = axis_of_taps(problem);
  if (taps.dilation != 1) return "taps lie " + number(taps.dilation) + " apart";
  if (channels_of_slab(taps.kernel) == 0)
    return number(taps.kernel) + " taps make no fours of a slab's rows";
  if (!is_wide(problem) && w.stride != 1)
    return "columns that a line of x meets lie " + number(w.stride) + " apart";
  if (problem.group_out() * taps.kernel % 4 != 0)
    return number(problem.group_out() * taps.kernel) + " sums of an input channel are no fours";
  const int64_t size = size_of(problem);
  for (const int64_t row : {w.in * size, w.out * size})
    if (row % 16 != 0) return "rows of " + number(row) + " bytes are no whole vectors";
  if (!is_wide(problem) && w.near_pad * size % 16 != 0)
    return "a padding of " + number(w.near_pad * size) + " bytes is no whole vectors";
  if (is_wide(problem)) {
    if (size == 2 && taps.kernel % 2 != 0) return number(taps.kernel) + " taps are no pairs";
    if (parts_of(problem) == 0)
      return number(taps.kernel) + " taps with stride " + number(taps.stride) +
             " meet more of a row than a box has";
  }
  if (problem.wide_index) return "a tensor has more than 2^31 elements";
  return {};
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
  Params p = shape(problem, {plan.row, plan.detail[0], plan.split});
  set_weight_tensors(args, p);
  return p;
}

Maps maps_of(const Problem& problem, const Plan& plan, const Params& p) {
  const Tile tile = kTiles[plan.row];
  const int64_t size = size_of(problem);
  const auto line = static_cast<int32_t>(kLine / size);
  // Row by row of a channel, `rows` of some channels.
  const auto y_map = [&](int32_t numbers, int32_t rows, int32_t channels) {
    const int64_t row = p.y_w * size, channel = row * p.y_h;
    return encode({p.y,
                   static_cast<int>(size),
                   4,
                   {p.y_w, p.y_h, problem.out_channels, problem.batch},
                   {size, row, channel, channel * problem.out_channels},
                   {numbers, rows, channels, 1},
                   {1, 1, 1, 1},
                   !tile.wide});
  };
  return {encode_rows(p.x, p.x_w, p.x_h, problem.in_channels, problem.batch, line, tile.width,
                      static_cast<int32_t>(size)),
          tile.wide ? y_map(static_cast<int32_t>(p.pitch / size), 1, block_slabs(tile) * p.channels)
                    : y_map(line, p.taps, p.channels)};
}

}  // namespace convt2d::cuda::braid
