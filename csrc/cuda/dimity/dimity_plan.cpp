#include "cuda/dimity/dimity_plan.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <numeric>

#include "core/phases.h"
#include "cuda/cuda_families.h"
#include "cuda/gather_params.h"
#include "cuda/strict_sums.h"
#include "cuda/tensor_map.h"
#include "cuda/weight_cost.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda::dimity {
namespace {

// By 15 layers' plans on an H200 (2026-11-30) in three types: within 16 % of the times, channels last 12 % of 14 layers', and what is
// chosen takes 1.01 and 1.02 times the best.
constexpr double kClock = 1700;               // cycles a microsecond
constexpr double kLaunch = 4.9;               // us
constexpr double kBlock = 11400;              // cycles of a block beside its steps,
constexpr double kStored = 20;                // a sum of each thread, on its way out
constexpr double kRounded = 8, kSplit = 7.9;  // instructions of a word of TF32, of strict fp32
constexpr double kConflicts = 2.3;    // ways in which lanes meet in a bank of shared memory;
constexpr double kTurn = 1.45;        // cycles of a bank's turn, channels last
constexpr double kCopy = 25;          // a row of a channel: 100 of one of four warps,
constexpr double kBoxRow = 0.5;       // of a box, a pixel
constexpr double kSum = 4;            // us, the second pass,
constexpr double kPartialRate = 1.5;  // and times the copy rate's time
struct Costs {
  double step;         // cycles of a step: its barriers, and where its rows are,
  double chunk;        // of a chunk: what a warp waits for
  double issued;       // of a scheduler, an instruction
  double l2_bytes;     // a cycle
  double rest;         // of what is less busy that is not hidden
  double memory_rate;  // of the copy rate
  double beside;       // of the lesser of work and bytes
};
constexpr Costs kPlanes = {334, 351, 0.82, 45, 0.22, 1, 0.22};
constexpr Costs kPixels = {301, 214, 0.91, 38, 0.09, 0.86, 0.18};

constexpr int kMostWindow = 64;      // rows of x that a step may look back
constexpr int kMostPitch = 1 << 20;  // bytes of a row of dY, which no block has room for
// Bytes of a pixel in a slab, and in which the swizzle comes round.
constexpr int kMostPixelBytes = 128, kSwizzled = 1024;

struct Choice {
  int row, row_units, tap_units, out_units, in_units, group_units, chunks, stages, split;
};

int64_t combinations(const Params& p) {
  return int64_t{p.group_blocks} * p.row_blocks * p.tap_blocks * p.out_blocks * p.in_blocks;
}

// A slot of x is written again with the step that takes a stage; until then nobody may look back at it.
// Warps that have the same sums to make share chunks, or steps as far as there are some at once, as is less for each.
void set_stages(int stages, Params& p) {
  p.stages = stages;
  p.slots = p.window + static_cast<int32_t>(ceil_div(stages - 1, p.phases));
  const int warps = kWarps / units(p);
  double least = p.chunks + 1.0;
  for (int parts = std::min(p.chunks, warps); parts >= 1; --parts) {
    const int turns = std::min(warps / parts, stages - 1);
    const double each = double(ceil_div(p.chunks, parts)) / turns;
    if (each < least) least = each, p.parts = parts, p.turns = turns;
  }
}

// Of `pixels` of so many bytes, at least; as many as no shared memory holds are as good as more.
Boxes boxes_of(int64_t pixels, int64_t bytes) {
  Boxes boxes;
  pixels = std::min<int64_t>(pixels, 1 << 20);
  boxes.pixel = bytes <= 32 ? 32 : bytes <= 64 ? 64 : kMostPixelBytes;
  const int64_t turn = kSwizzled / boxes.pixel;
  const int64_t count = ceil_div(pixels, kMostSpan);
  const int64_t each = ceil_div(pixels, count);
  boxes.slabs = static_cast<int32_t>(ceil_div(bytes, boxes.pixel));
  boxes.count = static_cast<int32_t>(count);
  boxes.pixels = static_cast<int32_t>(count > 1 ? ceil_div(each, turn) * turn : each);
  boxes.pitch = static_cast<int32_t>(ceil_div(count * boxes.pixels, turn) * kSwizzled);
  return boxes;
}

void shape(const Problem& problem, const Choice& choice, Params& p) {
  const Tile tile = kTiles[choice.row];
  const Axis &h = problem.h, &w = problem.w;
  const int size = static_cast<int>(element_size(problem.dtype)), vector = 16 / size;
  const auto narrow = [](int64_t value) { return static_cast<int32_t>(value); };
  p = {};
  set_weight_extents(problem, p);
  p.y_h = narrow(h.out), p.y_w = narrow(w.out);
  p.x_plane = p.x_h * p.x_w, p.y_plane = p.y_h * p.y_w;
  p.x_numbers = narrow(problem.batch * problem.in_channels * p.x_plane);
  p.y_numbers = narrow(problem.batch * problem.out_channels * p.y_plane);
  p.stride_h = narrow(h.stride), p.stride_w = narrow(w.stride);
  p.pad_h = narrow(h.near_pad), p.pad_w = narrow(w.near_pad);
  p.dilation_h = narrow(h.dilation), p.dilation_w = narrow(w.dilation);
  p.kernel_h = narrow(h.kernel), p.kernel_w = narrow(w.kernel);
  p.row_units = choice.row_units, p.tap_units = choice.tap_units;
  p.out_units = choice.out_units, p.in_units = choice.in_units;
  p.group_units = choice.group_units;
  p.chunks = choice.chunks;

  const int together = std::gcd(p.stride_h, p.dilation_h);
  const int step = p.stride_h / together, back = p.dilation_h / together;
  const int rows = std::min(block_rows(p, tile), p.kernel_h);
  p.phases = std::min(step, rows);
  p.window = (rows - 1) / step * back + 1;
  for (int row = 0; row < rows; ++row)
    p.phase[row] = int8_t(row % step), p.back[row] = int8_t(row / step * back);

  p.reach =
      (p.chunks * kChunkPixels - 1) * p.stride_w + (block_taps(p, tile) - 1) * p.dilation_w + 1;
  p.x_whole = p.x_w % vector == 0;
  p.group_blocks = narrow(ceil_div(p.groups, p.group_units));
  // Numbers wherever among 16 bytes they start, and a word more that is fetched; channels of x two words apart, but for
  // whole turns of the banks.
  p.x_pitch = p.chunks * kChunkPixels * size + 32;
  const int64_t y_row = ceil_div((int64_t{p.reach} + vector - 1) * size + 4, 16) | 1;
  p.y_pitch = narrow(std::min<int64_t>(y_row * 16, kMostPitch));
  if (tile.channels_last) {
    const auto boxes = [&](int64_t pixels, int group, int channels) {
      return boxes_of(pixels, ((p.group_units - 1) * group + channels) * size);
    };
    p.x_boxes = boxes(p.chunks * kChunkPixels, p.rows, block_inputs(p));
    p.y_boxes = boxes(p.reach, p.columns, block_outputs(p));
    p.slot_bytes = p.x_boxes.slabs * p.x_boxes.pitch;
    p.stage_bytes = p.y_boxes.slabs * p.y_boxes.pitch;
  } else {
    p.slot_bytes = block_inputs(p) * p.x_pitch;
    p.stage_bytes = block_outputs(p) * p.y_pitch;
  }
  set_stages(choice.stages, p);
  p.row_blocks = narrow(ceil_div(p.kernel_h, block_rows(p, tile)));
  p.tap_blocks = narrow(ceil_div(p.kernel_w, block_taps(p, tile)));
  p.out_blocks = narrow(ceil_div(p.columns, block_outputs(p)));
  p.in_blocks = narrow(ceil_div(p.rows, block_inputs(p)));
  p.row_tiles = narrow(ceil_div(p.x_w, p.chunks * kChunkPixels));
  p.strip_q = p.x_h + p.window - 1;
  p.all_q = p.batch * p.row_tiles * p.strip_q;
  p.split = choice.split;
  p.by_q = FastDivide(p.strip_q);
  p.by_tiles = FastDivide(p.row_tiles);
}

// Rows of dY that a tap reaches, at most.
int64_t rows_reached(const Axis& h) {
  const int64_t together = std::gcd(h.stride, h.dilation), step = h.stride / together;
  const int64_t back = (h.kernel - 1) / step * (h.dilation / together);
  return std::min(h.out, std::min(step, h.kernel) * (h.in + back));
}

// What a layout makes of a step, beside its multiplications.
struct Work {
  double loads, pixels, made;  // instructions of a chunk and a warp: loads of dY, of x, others
  double load_cycles, pixel_cycles;  // of shared memory, a load of each
  double bytes, copies;              // that come, and cycles until they have been asked for
};

// Instructions that make operands of what was loaded.
double operands_made(const Params& p, Tile tile, int size, bool strict) {
  const double numbers = lane_numbers(tile), rows = std::min(tile.taps_h, p.kernel_h);
  if (size == 2) return p.phases * (numbers + 4.0 * tile.taps_w);
  const double words = p.phases * 2 * numbers + rows * 4;
  return strict ? kSplit * words + rows * tile.taps_w * 4 : kRounded * words;
}

Work work_of_planes(const Params& p, Tile tile, int size, bool strict) {
  const double numbers = lane_numbers(tile), raw = size == 4 ? numbers : numbers / 2 + 1;
  const double rows = std::min(tile.taps_h, p.kernel_h);
  const int outputs = std::min(block_outputs(p), p.columns),
            inputs = std::min(block_inputs(p), p.rows);
  Work work;
  work.loads = p.phases * 2 * (tile.stride == kAny ? numbers : raw);
  work.pixels = rows * (p.x_whole ? 1 : size == 4 ? 4 : 3);
  work.made = operands_made(p, tile, size, strict);
  work.load_cycles = kConflicts;
  work.pixel_cycles = kConflicts * (size / 2);
  work.bytes = double(p.phases) * std::min(p.reach, p.y_w) * size * outputs +
               double(p.chunks) * kChunkPixels * size * inputs;
  work.copies = kCopy * (p.phases * outputs + inputs);
  return work;
}

// Channels last, a tap's pixels are one load or four, and nothing is made of what the copy engine rounded. Pixels of dY meet in
// banks if the stride is even, or words if pixels are short.
Work work_of_pixels(const Params& p, Tile tile, int size, bool strict) {
  const double rows = std::min(tile.taps_h, p.kernel_h);
  const int even = std::gcd(p.stride_w, 8), loads = size == 4 ? 4 : 1;
  const auto box_rows = [](const Boxes& boxes) { return double(boxes.bytes()) / boxes.pixel; };
  Work work;
  work.loads = p.phases * (tile.taps_w * loads);
  work.pixels = rows * loads;
  work.made = strict ? operands_made(p, tile, size, strict) : 0;
  work.load_cycles =
      kTurn * (size == 2 ? 4 * even : 2 * std::max(even / 2, kMostPixelBytes / p.y_boxes.pixel));
  work.pixel_cycles = size == 4 ? 1 : 2;
  work.bytes = double(p.phases) * p.y_boxes.bytes() + p.x_boxes.bytes();
  work.copies = kBoxRow * (p.phases * box_rows(p.y_boxes) + box_rows(p.x_boxes));
  return work;
}

double predict(const Problem& problem, const Device& device, const Params& p, Tile tile) {
  const int size = static_cast<int>(element_size(problem.dtype));
  const bool strict = is_strict(problem);
  const double slices = size / 2, rows = std::min(tile.taps_h, p.kernel_h);
  const Costs& costs = tile.channels_last ? kPixels : kPlanes;
  const Work work = (tile.channels_last ? work_of_pixels : work_of_planes)(p, tile, size, strict);
  // Of a chunk and a warp, and all phases.
  const double mmas = rows * tile.taps_w * slices * (strict ? 3 : 1);
  const double issued =
      costs.issued * (mmas + work.loads + work.pixels + work.made + 40 * p.phases + 12 * rows);
  const double rate =
      (size == 2 ? device.mma_f16_per_us : device.mma_tf32_per_us) / device.sm_count / kClock;
  const double mma_cycles = (size == 2 ? 2048 : 1024) / rate;  // 16 x 8 x 16 products, or 8
  const int used = units(p) * sharers(p);
  const double each = std::ceil(double(p.chunks) / p.parts) / p.turns;  // chunks of a warp
  const double busiest_warps = std::ceil(used / 4.0) * 4;               // of four schedulers
  const double mma = busiest_warps * each * mmas * mma_cycles;
  const double issue = busiest_warps / 4 * each * issued;
  // What a warp would take that were alone.
  const double alone =
      each * (4 * mmas * mma_cycles + issued + p.phases * costs.chunk) + p.phases * costs.step;
  const double shared =
      units(p) * p.chunks * (work.load_cycles * work.loads + work.pixel_cycles * work.pixels) +
      work.bytes / 128;
  const double l2 = work.bytes / costs.l2_bytes;
  const double busiest = std::max({mma, issue, alone, shared, l2, work.copies});
  const double cycles =
      busiest + costs.rest * (mma + issue + alone + shared + l2 + work.copies - busiest);
  const double blocks = double(combinations(p)) * p.split;
  const double busy_us =
      std::ceil(blocks / device.sm_count) *
      (kBlock + kStored * sums(tile) + std::ceil(double(p.all_q) / p.split) * cycles) / kClock;
  const double unread = double(problem.h.out - rows_reached(problem.h)) * problem.w.out *
                        problem.batch * problem.out_channels * size;
  return weight_us(problem, device, p.split, busy_us,
                   {kLaunch, costs.memory_rate, costs.beside, kSum, kPartialRate}, unread);
}

// Whether so many channels are whole 16 bytes.
bool whole(const Problem& problem, int64_t channels) {
  return channels * element_size(problem.dtype) % 16 == 0;
}

// Of how many groups a block may have so many channels, channels last: boxes start at whole 16 bytes.
std::vector<int> groups_together(const Problem& problem, int64_t outputs, int64_t inputs) {
  if (problem.x_layout != Layout::nhwc) return {1};
  std::vector<int> found;
  const bool all = outputs >= problem.group_out() && inputs >= problem.group_in();
  for (int groups = 1; groups <= std::min<int64_t>(problem.groups, all ? kWarps : 1); ++groups)
    if (groups == problem.groups || (whole(problem, groups * problem.group_out()) &&
                                     whole(problem, groups * problem.group_in())))
      found.push_back(groups);
  return found;
}

// Every tile that fits, in no order: the same for all devices. `reason` says why there is none.
std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason) {
  std::vector<Candidate<Choice>> found;
  const auto up_to = [](int64_t needed, int each, int most) {
    return static_cast<int>(std::min<int64_t>(ceil_div(needed, each), most));
  };
  const int64_t all_chunks = ceil_div(problem.w.in, kChunkPixels);
  std::vector<int> chunks;  // of a strip
  const bool last = problem.x_layout == Layout::nhwc;
  if (last) reason = "whole 16 bytes are channels of more groups than a block has";
  for (int most = kMostChunks; most >= (last ? 2 : 8); most /= 2)
    add_once(chunks, static_cast<int>(ceil_div(all_chunks, ceil_div(all_chunks, most))));
  const auto add = [&](Choice choice) {
    const Tile tile = kTiles[choice.row];
    Params p;
    shape(problem, choice, p);
    if (units(p) > kWarps) return;
    if (p.window > kMostWindow) {
      reason = "steps look back at " + std::to_string(p.window) + " rows of x";
      return;
    }
    const auto fits = [&] {
      set_stages(choice.stages, p);
      return shared_bytes(p, tile) <= device.smem_optin;
    };
    while (choice.stages > 1 && !fits()) --choice.stages;
    if (choice.stages < 2) {
      reason =
          "two steps take " + std::to_string(shared_bytes(p, tile)) + " bytes of shared memory";
      return;
    }
    if (combinations(p) > INT32_MAX) {
      reason = "dW has too many tiles";
      return;
    }
    for (int split :
         splits_worth_trying(problem, combinations(p), p.all_q, p.chunks * kChunkPixels)) {
      p.split = choice.split = split;
      found.push_back({choice, predict(problem, device, p, tile)});
    }
  };
  for (int row = 0; row < kTileCount; ++row) {
    const Tile tile = kTiles[row];
    const bool neighbours = problem.w.kernel == 1 || problem.w.dilation == 1;
    if (tile.channels_last != last) continue;
    if (tile.stride != kAny && !(tile.stride == problem.w.stride && neighbours)) continue;
    for (int of_rows = up_to(problem.h.kernel, tile.taps_h, kMostRows / tile.taps_h); of_rows >= 1;
         --of_rows)
      for (int taps = up_to(problem.w.kernel, tile.taps_w, 2); taps >= 1; --taps)
        for (int out = up_to(problem.group_out(), kOutputs, kMostChannels / kOutputs); out >= 1;
             --out)
          for (int in = up_to(problem.group_in(), kInputs, kMostChannels / kInputs); in >= 1; --in)
            for (int of_groups : groups_together(problem, out * kOutputs, in * kInputs))
              for (int of_strip : chunks)
                add({row, of_rows, taps, out, in, of_groups, of_strip, kMostStages, 1});
  }
  return found;
}

Plan plan_of(const Problem& problem, const Device& device, const Choice& choice) {
  const Tile tile = kTiles[choice.row];
  Params p;
  shape(problem, choice, p);
  Plan plan = weight_sum_plan(problem, device, choice.row, choice.split,
                              predict(problem, device, p, tile), kLaunch);
  const int detail[] = {choice.row_units,   choice.tap_units, choice.out_units, choice.in_units,
                        choice.group_units, choice.chunks,    choice.stages};
  std::copy(std::begin(detail), std::end(detail), plan.detail);
  const auto number = [](int64_t value) { return std::to_string(value); };
  plan.note = (p.group_units > 1 ? number(p.group_units) + " groups, " : "") +
              number(block_outputs(p)) + " x " + number(block_inputs(p)) + " channels, " +
              number(block_rows(p, tile)) + " x " + number(block_taps(p, tile)) +
              " taps, warps of " + number(tile.taps_h) + " x " + number(tile.taps_w) + ", " +
              number(p.parts) + " parts of " + number(p.chunks) + " chunks, " + number(p.turns) +
              " turns, " + number(p.stages) + " stages and " + number(p.slots) + " rows, split " +
              number(p.split) + ", " + number(blocks_of(p)) + " blocks";
  return plan;
}

std::string refusal(const Problem& problem, const Device& device) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  const Axis &h = problem.h, &w = problem.w;
  if (!device.has_wgmma) return "dimity is for sm_90a";
  if (problem.direction != Direction::grad_weight) return "dimity is for grad_weight";
  if (problem.dtype == DType::f64) return "dimity is for fp16, bf16 and fp32";
  if (problem.x_layout != problem.y_layout || problem.x_layout == Layout::strided)
    return "dimity is for NCHW and NHWC";
  if (problem.wide_index) return "a tensor has more than 2^31 elements";
  // A step looks back at rows of x that wait in shared memory, and may be outside of dY: 32 bits hold where.
  const int64_t together = std::gcd(h.stride, h.dilation);
  if (h.kernel > 1 && h.dilation / together >= kMostWindow)
    return "kernel rows lie " + number(h.dilation / together) + " rows of x apart";
  if ((std::abs(h.near_pad) + (h.in + kMostWindow) * h.stride + h.kernel * h.dilation) * w.out +
          std::abs(w.near_pad) + (w.in + kMostChunks * kChunkPixels) * w.stride +
          (w.kernel + 8) * w.dilation >
      INT32_MAX / 2)
    return "taps lie too far apart";
  if (problem.batch * (h.in + kMostWindow) * ceil_div(w.in, kChunkPixels) > INT32_MAX / 2)
    return "x has too many rows";
  if (problem.x_layout == Layout::nhwc) {
    // What the copy engine takes; a matrix that the tensor core turns, or a lane's two words.
    if (!whole(problem, problem.in_channels) || !whole(problem, problem.out_channels))
      return "a pixel's channels are no whole 16 bytes";
    if (problem.groups > 1 &&
        (problem.dtype == DType::f32
             ? problem.group_out() % 2 != 0
             : !whole(problem, problem.group_in()) || !whole(problem, problem.group_out())))
      return "a group's " + number(problem.group_in()) + " and " + number(problem.group_out()) +
             " channels start between those that are fetched together";
  }
  return sums_too_short(problem, kLeastSplitTerms);
}

}  // namespace

int shared_bytes(const Params& p, Tile tile) {
  const int64_t stages = int64_t{p.stages} * p.stage_bytes + int64_t{p.slots} * p.slot_bytes;
  const int64_t all_sums = int64_t{kWarps} * sums(tile) * 128;
  return static_cast<int>(stages_at(tile) +
                          std::min<int64_t>(std::max(stages, all_sums), INT32_MAX / 2));
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
  shape(problem, {plan.row, d[0], d[1], d[2], d[3], d[4], d[5], d[6], plan.split}, p);
  set_weight_tensors(args, p);
  const auto steps = weight_steps(args, p);
  std::copy(steps.begin(), steps.end(), p.stride);
  return p;
}

Maps maps_of(const Problem& problem, const Params& p) {
  if (problem.x_layout != Layout::nhwc) return {};
  const int64_t size = element_size(problem.dtype);
  const auto map = [&](const void* base, int64_t channels, int64_t height, int64_t width,
                       const Boxes& boxes) {
    TensorBox box = {
        base,
        static_cast<int>(size),
        4,
        {channels, width, height, problem.batch},
        {size, channels * size, width * channels * size, height * width * channels * size},
        {static_cast<int32_t>(boxes.pixel / size), boxes.pixels, 1, 1},
        {1, 1, 1, 1}};
    box.rounded = !is_strict(problem);
    return encode(box);
  };
  return {map(p.x, problem.in_channels, p.x_h, p.x_w, p.x_boxes),
          map(p.y, problem.out_channels, p.y_h, p.y_w, p.y_boxes)};
}

}  // namespace convt2d::cuda::dimity
