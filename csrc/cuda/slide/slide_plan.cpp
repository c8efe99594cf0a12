#include "cuda/slide/slide_plan.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/phases.h"
#include "cuda/gather_params.h"
#include "cuda/tensor_map.h"

namespace convt2d::cuda::slide {
namespace {

constexpr double kClock = 1700;  // cycles a microsecond

// What things cost, in cycles where nothing else is said. Fitted to times on the H200 (kernel_bench sweep of
// bench/layers.json and 60 random layers, fp16, 2026-11-22): 11 % off in the mean.
constexpr double kWeightByte = 0.08;  // of resident weights
constexpr double kOutput = 28;        // of a thread's output
constexpr double kL2Bytes = 64;       // a cycle
// What differs between forward and grad_input, which other kernels serve too.
struct Costs {
  double launch;              // us
  double visit;               // of a stage
  double narrow;              // tiles of 64 positions: times what the tensor core takes
  double run;                 // of a warp's 8 channels of a row of a tile
  double pass;                // of a sum that is passed on
  double memory_rate;         // of the copy rate
  double beside;              // of the lesser of work and bytes
  double turned_busy;         // what took longer than is counted, of turned rows
  double turned_memory_rate;  // of these, as above
  double turned_beside;
};
// Forward by 18 layers on an H200 and by eight on an H100, which takes as long (kernelbench_1_71, 2_5, 2_11 and 2_91: 0.99 to 1.03 of
// the H200's times), unless rows are turned (1_57 and 2_19: 1.25), so that not bytes limit it (2026-11-26).
constexpr Costs kForwardCosts = {7, 969, 1.43, 759, 10.7, 0.95, 0.205, 1.17, 0.6, 0.2};
constexpr Costs kInputCosts = {10, 670, 1.14, 720, 11, 0.65, 0.25, 1.17, 0.65, 0.25};

// Turned tiles: counted.
constexpr double kTurnedMultiply = 1.15;  // times what the tensor core takes
constexpr double kTurnedBatch = 140;      // from one pixel of a kernel row to the next, at least
constexpr double kTurnRow = 400;          // of the warps that turn, for a row
constexpr double kTurnOctet = 250;        // and for eight channels of each
constexpr double kTurnedL2Bytes = 30;     // a cycle
constexpr double kTurnedOdd = 1.13;       // and where rows of the result are no whole 16 bytes
constexpr double kTurnedOddPairs = 1.35;  // the same of pairs of rows

struct Choice {
  int row;  // of kTiles
  int run, turns, stages, walkers;
};

// An axis as the forward of what is computed: a gradient of stride 1 is the forward of the mirrored kernel.
Axis forward_axis(const Problem& problem, const Axis& axis) {
  if (problem.direction == Direction::fwd) return axis;
  return {axis.out,
          axis.in,
          axis.kernel,
          axis.stride,
          (axis.kernel - 1) * axis.dilation - axis.near_pad,
          axis.dilation};
}

void set_shared_memory(Tile tile, Params& p) {
  // With room for where a row starts; channels of a warp in different banks.
  p.staging_pitch = static_cast<int32_t>(
      round_up(((p.run + kBeyond) * tile.stride + kVector) * 2, 128) + 16 * tile.stride);
  const int64_t waiting =
      p.turns * p.stride_h * p.tile_rows * thread_channels(tile) * carried(tile) * kWaitingBytes;
  SharedPlaces places{kHeader};
  p.weights_at = places.take(int64_t{p.kernel_h} * p.slices * slice_bytes(tile), 1024);
  p.stages_at = places.take(int64_t{p.stages} * p.stage_bytes, 1024);
  p.staging_at = places.take(int64_t{kConsumers} / 32 * staging_bytes(p), 16);
  p.carried_at = places.take(p.sweeps > 1 ? waiting : 0, 16);
  p.shared_bytes = static_cast<int32_t>(places.end);
}

// What follows from the problem alone.
void set_geometry(const Problem& problem, Params& p) {
  const Axis h = forward_axis(problem, problem.h), w = forward_axis(problem, problem.w);
  set_extents(problem, p);
  p.x_h = static_cast<int32_t>(h.in);
  p.x_w = static_cast<int32_t>(w.in);
  p.y_h = static_cast<int32_t>(h.out);
  p.y_w = static_cast<int32_t>(w.out);
  p.kernel_h = static_cast<int32_t>(h.kernel);
  p.stride_h = static_cast<int32_t>(h.stride);
  p.pad_h = static_cast<int32_t>(h.near_pad);
  p.pad_w = static_cast<int32_t>(w.near_pad);
  int8_t taps = 0;
  for (int64_t phase = 0; phase < h.stride; ++phase) {
    p.first_tap[phase] = taps;
    for (int8_t tap = 0; tap < p.kernel_h; ++tap)
      if (tap * h.dilation % h.stride == phase) p.tap[taps++] = tap;
    p.first_tap[phase + 1] = taps;
  }
  for (int tap = 0; tap < p.kernel_h; ++tap)
    p.tap_shift[tap] = static_cast<int8_t>(tap * h.dilation / h.stride);
  p.reach = p.tap_shift[p.kernel_h - 1];
}

// Everything that follows from the problem and the choice, pointers aside. Returns why it cannot be done, or an empty
// string.
std::string shape(const Problem& problem, const Choice& choice, Params& p) {
  const Tile tile = kTiles[choice.row];
  p = {};
  set_geometry(problem, p);
  p.slices = static_cast<int32_t>(ceil_div(p.reduce, kSlice));
  p.reduce_padded = p.slices * kSlice;
  p.column_tiles = static_cast<int32_t>(ceil_div(p.columns, channels(tile)));

  p.run = choice.run;
  p.run_shift = shift_of(p.run);
  p.box = std::min(p.run, kMostBox);
  p.tile_rows = tile.width / p.run;
  p.turns = choice.turns;
  p.item_rows = kGroups * p.turns * p.tile_rows;
  p.patch_rows = p.item_rows + p.reach;
  if (p.patch_rows > kMostSpan) return "a tile has too many rows";
  p.first_row = p.pad_h / p.stride_h;
  p.end_row = (p.pad_h + p.y_h - 1) / p.stride_h + 1;
  p.row_items = static_cast<int32_t>(ceil_div(p.end_row - p.first_row, p.item_rows));
  const int32_t positions = std::min((p.pad_w + p.y_w - 1) / tile.stride + 1, p.x_w);
  p.sweeps = static_cast<int32_t>(ceil_div(positions, p.run));
  // Outputs behind the last position; rows that start at odd places move on by one.
  if (p.pad_w + p.y_w >= (p.sweeps * p.run + kBeyond) * tile.stride)
    return "too many outputs behind the last pixel";
  p.items = p.batch * p.row_items;
  p.walkers = std::min(choice.walkers, p.items);

  p.stages = choice.stages;
  p.box_bytes = p.patch_rows * p.reduce_padded * p.box * 2;
  p.stage_bytes = p.box_bytes * (p.run / p.box);
  set_shared_memory(tile, p);
  return {};
}

int64_t weight_bytes(const TurnedParams& p) {
  const int64_t zeros = p.group_rows > 1 ? tile_channels(p) * 16 : 0;
  return int64_t{p.kernel_w} * p.tap_column * (p.group_rows > 1 ? 1 : p.kernel_h) + zeros;
}

// The same of turned tiles, of which `turns` are the rows of a warpgroup and `stages` are slots.
void shape(const Problem& problem, const Choice& choice, TurnedParams& p) {
  p = {};
  set_geometry(problem, p);
  p.kernel_w = static_cast<int32_t>(problem.w.kernel);
  p.low_h = p.pad_h - p.reach;
  p.low_w = p.pad_w - (p.kernel_w - 1);
  p.tap_rows = p.kernel_h > 1 ? p.tap_shift[1] : 0;
  p.residues = static_cast<int32_t>(residues_of(int64_t{p.x_h} * p.x_w));
  p.residue_shift = shift_of(p.residues);
  // A block of channels is 32, 64 or 128 bytes, and eight of each residue at least.
  const int32_t least = std::max(kSlice, 8 * p.residues);
  p.reduce_padded = p.reduce <= kMostDepth / 2
                        ? std::max(least, p.reduce <= kSlice ? kSlice : 2 * kSlice)
                        : static_cast<int32_t>(round_up(p.reduce, kMostDepth));
  p.depth = std::min(p.reduce_padded, kMostDepth);
  p.depths = p.reduce_padded / p.depth;
  p.slices = p.reduce_padded / kSlice;
  p.group_rows = choice.turns;
  p.column_tiles = static_cast<int32_t>(ceil_div(p.columns, tile_channels(p)));
  // Of a pair, a row of the kernel and the next, or zeros, are one operand.
  const int32_t octet = tile_channels(p) * 16 * (p.group_rows > 1 ? p.kernel_h + 1 : 1);
  p.weight_slice = 2 * octet;
  p.tap_column = p.slices * p.weight_slice;
  p.tap_row = p.group_rows > 1 ? -tile_channels(p) * 16 : p.kernel_w * p.tap_column;
  p.last_tap = p.group_rows > 1 ? p.kernel_h * tile_channels(p) * 16 : 0;
  p.strip = choice.run;
  p.pixels = p.strip + p.kernel_w - 1;
  p.strips = static_cast<int32_t>(ceil_div(p.y_w, p.strip));
  p.steps = static_cast<int32_t>(ceil_div(p.y_h, step_rows(p)));
  p.walkers = std::min(choice.walkers, steps_of(p));
  p.slots = choice.stages;
  p.raw_bytes = p.reduce_padded * copied_pixels(p.strip) * 2;
  p.raws = std::clamp(kCopiedBytes / p.raw_bytes, kLeastCopied, kMostCopied);
  p.block_bytes = p.pixels * p.depth * 2;
  p.row_bytes = p.depths * p.block_bytes;
  p.tile_rows = 1;
  p.staging_pitch = static_cast<int32_t>(round_up((p.strip + kVector) * 2 - 16, 32)) + 16;
  SharedPlaces places{kTurnedHeader};
  p.weights_at = places.take(weight_bytes(p), 128);
  p.raws_at = places.take(int64_t{p.raws} * p.raw_bytes, 128);
  p.staging_at = places.take(int64_t{kTurnedConsumers} / 32 * staging_bytes(p), 16);
  p.rows_at = places.take(int64_t{p.slots} * p.row_bytes, 1024);
  p.shared_bytes = static_cast<int32_t>(places.end);
}

const Costs& costs_of(const Problem& problem) {
  return problem.direction == Direction::fwd ? kForwardCosts : kInputCosts;
}

double predict(const Problem& problem, const Device& device, const TurnedParams& p) {
  const Costs& cost = costs_of(problem);
  // Cycles for a warpgroup's rows of a strip: of the tensor core; of shared memory; of a warpgroup, which multiplies, then
  // stores; of the warps that turn.
  const double products = double(kernel_steps(p)) * p.kernel_w * p.slices;
  const double multiply =
      kTurnedMultiply * products * p.strip / 2 * (p.strip == 64 ? cost.narrow : 1);
  const double copied = double(p.group_rows) * p.raw_bytes;
  const double outputs = double(p.strip) * kRows * 2;
  const double shared = (products * (kRows + p.strip) * 32 + 3 * copied + 3 * outputs) / 128;
  const double store = 2 * (cost.run + kOutput * p.strip / 4);
  const double turn = p.group_rows * (kTurnRow + kTurnOctet * std::ceil(p.slices / 2.0));
  const int beside = std::min(kTurnedGroups, (p.slots - p.reach) / p.group_rows);  // warpgroups
  const double batches = double(kernel_steps(p)) * p.kernel_w * p.depths;
  const double alone = std::max(multiply, kTurnedBatch * batches);
  const double rows = std::max(
      {multiply, shared, (cost.visit + alone + store) / beside, turn, copied / kTurnedL2Bytes});
  const double waves = std::ceil(double(blocks_of(p)) / device.sm_count);
  const double steps = std::ceil(double(steps_of(p)) / p.walkers);
  const double extra = (steps / p.steps + 1) * p.reach / p.group_rows;  // of first rows
  const int64_t row = problem.direction == Direction::fwd ? problem.w.out : problem.w.in;
  const double odd = row % 8 == 0 ? 1 : p.group_rows > 1 ? kTurnedOddPairs : kTurnedOdd;
  const double busy_us = cost.turned_busy * odd * waves *
                         (kWeightByte * weight_bytes(p) + (steps * kTurnedGroups + extra) * rows) /
                         kClock;
  const double memory_us =
      tensor_bytes(problem) / (cost.turned_memory_rate * device.copy_bytes_per_us);
  return cost.launch + std::max(busy_us, memory_us) +
         cost.turned_beside * std::min(busy_us, memory_us);
}

double predict(const Problem& problem, const Device& device, const Params& p, Tile tile) {
  const Costs& cost = costs_of(problem);
  const int quarter = tile.width / 4;  // positions of a thread
  const double multiply = double(p.turns) * p.kernel_h * p.slices * blocks(tile) * tile.width / 2 *
                          (tile.width == 64 ? cost.narrow : 1);
  const double store = double(p.turns) * p.stride_h * thread_channels(tile) *
                       (cost.run * p.tile_rows + kOutput * quarter * tile.stride +
                        cost.pass * quarter * carried(tile));
  // The tensor core serves both warpgroups; a warpgroup multiplies, then stores.
  const double visit =
      cost.visit + std::max({kGroups * multiply, multiply + store, p.stage_bytes / kL2Bytes});
  const double waves = std::ceil(double(blocks_of(p)) / device.sm_count);
  const double visits = std::ceil(double(p.items) / p.walkers) * p.sweeps;
  const double weights = kWeightByte * p.kernel_h * p.slices * slice_bytes(tile);
  const double busy_us = waves * (weights + visits * visit) / kClock;
  const double memory_us = tensor_bytes(problem) / (cost.memory_rate * device.copy_bytes_per_us);
  return cost.launch + std::max(busy_us, memory_us) + cost.beside * std::min(busy_us, memory_us);
}

// Why there are no tiles whose sums slide.
std::string refuse_slid(const Problem& problem) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  const Axis h = forward_axis(problem, problem.h), w = forward_axis(problem, problem.w);
  if (std::none_of(std::begin(kTiles), std::end(kTiles), [&](const Tile& tile) {
        return tile.kernel == w.kernel && tile.stride == w.stride;
      }))
    return "no tile for kernel rows of " + number(w.kernel) + " with stride " + number(w.stride);
  if (h.near_pad < 0 || w.near_pad < 0) return "slide takes no negative padding";
  if (w.in % kVector != 0)
    return "rows of " + number(w.in) + " are not whole vectors of " + number(kVector);
  const int64_t reduce =
      problem.direction == Direction::fwd ? problem.group_in() : problem.group_out();
  if (problem.groups > 1 && reduce % kSlice != 0)
    return "groups of " + number(reduce) + " channels, which are no multiple of " + number(kSlice);
  return {};
}

// And no turned ones.
std::string refuse_turned(const Problem& problem) {
  const Axis h = forward_axis(problem, problem.h), w = forward_axis(problem, problem.w);
  if (h.stride != 1 || w.stride != 1) return "turned rows are for stride 1";
  if (w.kernel > most_columns(kStrips[0])) return "kernel rows are too long";
  TurnedParams p;
  shape(problem, {kTurnedRow, kStrips[0], 1, 0, 1}, p);
  if (p.reduce % p.residues != 0 || (problem.groups > 1 && p.reduce != p.reduce_padded))
    return std::to_string(p.reduce) + " channels cannot be turned";
  return {};
}

std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason) {
  std::vector<Candidate<Choice>> found;
  const std::string slid = refuse_slid(problem), turned = refuse_turned(problem);
  if (!slid.empty()) reason = slid;
  for (int row = 0; row < kTileCount && slid.empty(); ++row) {
    const Tile tile = kTiles[row];
    if (tile.kernel != problem.w.kernel || tile.stride != problem.w.stride) continue;
    for (int run = tile.width; run >= kLeastRun; run /= 2)
      for (const int turns : {1, 2, 4}) {
        Choice choice = {row, run, turns, 2, INT32_MAX};
        Params p;
        std::string why = shape(problem, choice, p);
        if (why.empty() && p.shared_bytes > device.smem_optin)
          why = "a tile needs " + std::to_string(p.shared_bytes) + " bytes of shared memory";
        if (!why.empty()) {
          reason = why;
          continue;
        }
        choice.stages =
            std::min(kMostStages, 2 + (device.smem_optin - p.shared_bytes) / p.stage_bytes);
        const int64_t combinations = int64_t{p.groups} * p.column_tiles;
        choice.walkers = static_cast<int>(std::max<int64_t>(1, device.sm_count / combinations));
        shape(problem, choice, p);
        found.push_back({choice, predict(problem, device, p, tile)});
      }
  }
  for (int row = kTurnedRow; row < kTurnedRow + kStripCount && turned.empty(); ++row)
    for (const int group_rows : {1, 2}) {
      const int strip = kStrips[row - kTurnedRow];
      if (problem.w.kernel > most_columns(strip)) continue;
      // Two rows of y read one more row of x than one does: of a kernel of one row, none in common.
      if (group_rows > 1 && (problem.h.dilation > 1 || problem.h.kernel == 1)) continue;
      TurnedParams p;
      Choice choice = {row, strip, group_rows, 0, INT32_MAX};
      shape(problem, choice, p);
      const int least = group_reach(p) + kLeastAhead;
      choice.stages = std::min<int>(kMostSlots, (device.smem_optin - p.shared_bytes) / p.row_bytes);
      choice.walkers = std::max(1, device.sm_count / (p.groups * p.column_tiles));
      if (choice.stages < least) {
        reason = (slid.empty() ? "" : slid + "; ") + "turned rows need " +
                 std::to_string(p.shared_bytes + int64_t{least} * p.row_bytes) +
                 " bytes of shared memory";
        continue;
      }
      shape(problem, choice, p);
      found.push_back({choice, predict(problem, device, p)});
    }
  return found;
}

Plan plan_of(const Problem& problem, const Candidate<Choice>& candidate) {
  const Choice& c = candidate.choice;
  Plan plan;
  plan.row = c.row;
  plan.predicted_us = candidate.predicted_us;
  const int detail[] = {c.run, c.turns, c.stages, c.walkers};
  std::copy(std::begin(detail), std::end(detail), plan.detail);
  if (c.row >= kTurnedRow) {
    TurnedParams p;
    shape(problem, c, p);
    plan.note = std::string(p.group_rows > 1 ? "pairs of " : "") + "turned rows, strips of " +
                std::to_string(p.strip) + ", " + std::to_string(p.slots) + " slots, " +
                std::to_string(p.residues) + " residues, " + std::to_string(blocks_of(p)) +
                " blocks";
    return plan;
  }
  const Tile tile = kTiles[c.row];
  Params p;
  shape(problem, c, p);
  plan.note = std::to_string(channels(tile)) + " channels x " + std::to_string(tile.width) +
              " positions, " + std::to_string(p.item_rows) + " rows of " + std::to_string(p.run) +
              ", " + std::to_string(p.stages) + " stages, " + std::to_string(blocks_of(p)) +
              " blocks";
  return plan;
}

Choice choice_of(const Plan& plan) {
  const int32_t* d = plan.detail;
  return {plan.row, d[0], d[1], d[2], d[3]};
}

// What slide_strided_plan.cpp plans.
bool is_strided(const Problem& problem) {
  return problem.direction == Direction::grad_input &&
         (problem.h.stride != 1 || problem.w.stride != 1);
}

std::string refusal(const Problem& problem, const Device& device) {
  const bool forward = problem.direction == Direction::fwd;
  if (!device.has_wgmma) return "no wgmma (sm_90a)";
  if (problem.direction == Direction::grad_weight) return "slide is for forward and grad_input";
  if (element_size(problem.dtype) != 2) return "slide is for 16 bits";
  if (problem.x_layout != Layout::nchw || problem.y_layout != Layout::nchw)
    return "slide is for NCHW";
  if (problem.wide_index) return "a tensor has more than 2^31 elements";
  if (is_strided(problem)) return {};
  if (problem.w.dilation != 1) return "slide takes rows without dilation";
  const Axis h = forward_axis(problem, problem.h);
  if (h.kernel > kMostTaps || (h.kernel - 1) * h.dilation / h.stride > INT8_MAX ||
      h.stride > kMostPhases)
    return "the kernel or its stride is too high";
  const int64_t reduce = forward ? problem.group_in() : problem.group_out();
  if (reduce > kMostSpan)
    return std::to_string(reduce) + " channels are more than a copy brings, " +
           std::to_string(kMostSpan);
  return {};
}

}  // namespace

std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason) {
  reason = refusal(problem, device);
  if (!reason.empty()) return {};
  if (is_strided(problem)) return strided_plans(problem, device, reason);
  return all_plans(problem, device, reason, refusal, candidates, plan_of);
}

Decision plan(const Problem& problem, const Device& device) {
  if (is_strided(problem) && refusal(problem, device).empty()) return strided_plan(problem, device);
  return best_plan(problem, device, refusal, candidates, plan_of);
}

namespace {

template <class SomeParams>
SomeParams told(const Problem& problem, const Plan& plan, const Args& args) {
  SomeParams p;
  shape(problem, choice_of(plan), p);
  set_tensors(problem, args, p);
  if (problem.direction != Direction::fwd) {  // mirrored: from the last tap backwards
    p.weight = static_cast<const char*>(p.weight) + ((problem.h.kernel - 1) * args.w.stride[2] +
                                                     (problem.w.kernel - 1) * args.w.stride[3]) *
                                                        element_size(problem.dtype);
    p.weight_h = -p.weight_h;
    p.weight_w = -p.weight_w;
  }
  return p;
}

}  // namespace

Params params_of(const Problem& problem, const Plan& plan, const Args& args) {
  return told<Params>(problem, plan, args);
}
TurnedParams turned_params_of(const Problem& problem, const Plan& plan, const Args& args) {
  return told<TurnedParams>(problem, plan, args);
}

CUtensorMap map_of(const Params& p) {
  const int64_t plane = int64_t{p.x_h} * p.x_w * 2;
  const int64_t all = int64_t{p.groups} * p.reduce;
  return encode({p.source,
                 2,
                 4,
                 {p.x_w, all, p.x_h, p.batch},
                 {2, plane, int64_t{p.x_w} * 2, plane * all},
                 {p.box, p.reduce_padded, p.patch_rows, 1},
                 {1, 1, 1, 1}});
}

CUtensorMap map_of(const TurnedParams& p) {
  const int64_t planes = int64_t{p.residues} * p.x_h * p.x_w, all = int64_t{p.groups} * p.reduce;
  const int64_t image = int64_t{p.x_h} * p.x_w * all * 2;
  TensorBox box = {p.source,
                   2,
                   4,
                   {planes, all / p.residues, p.batch, 1},
                   {2, planes * 2, image, image},
                   {copied_pixels(p.strip), p.reduce_padded / p.residues, 1, 1},
                   {1, 1, 1, 1}};
  box.swizzled = false;
  return encode(box);
}

int64_t blocks_of(const Params& p) { return int64_t{p.groups} * p.column_tiles * p.walkers; }

}  // namespace convt2d::cuda::slide
