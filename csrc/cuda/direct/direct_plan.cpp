// direct: which tile, and how long it should take. Nothing is refused.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "cuda/direct/direct.h"
#include "cuda/direct/direct_config.h"
#include "cuda/grad_bias/grad_bias.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda {
namespace direct {
namespace {

constexpr double kLaunchUs = 8;

int64_t ceil_ratio(int64_t a, int64_t b) { return (a + b - 1) / b; }

// ---- a model of one kernel ----

// What the blocks of one launch do, in instructions of one thread.
struct Work {
  int threads = 0;
  int resident = 0;  // blocks that fit on one SM
  double blocks = 0;
  double instructions = 0;  // of an average block
};

// A thread of a tile walks `products` of depth in `steps` slabs, bringing in `loads` elements a step,
// and stores its results in the end.
double tile_instructions(const Tile& tile, double products, double steps, double loads,
                         double slow_multiply) {
  constexpr double step_overhead = 60, load_cost = 8, result_cost = 14, start = 1000;
  const double outer = tile.thread_rows * tile.thread_columns;
  const double fragments = (tile.thread_rows + tile.thread_columns) / 2.0;
  return tile.correction * (products * (outer * slow_multiply + fragments) +
                            steps * (step_overhead + load_cost * loads)) +
         outer * result_cost + start;
}

double slow_multiply(const Problem& problem, const Device& device) {
  return problem.dtype == DType::f64 ? device.fma_f32_per_us / device.fma_f64_per_us : 1;
}

// The sustained rate of a large matmul stands for the rate of any instruction. Blocks run in rounds
// of what fits; fewer warps than `busy_warps` leave the units of an SM waiting.
double compute_us(const Work& work, const Device& device) {
  constexpr double busy_warps = 10;
  const double sm_rate = device.fma_f32_per_us / device.sm_count;
  const auto round_us = [&](double blocks) {
    const double busy = std::min(1.0, blocks * work.threads / 32 / busy_warps);
    return blocks * work.threads * work.instructions / (sm_rate * busy);
  };
  const double a_round = double(work.resident) * device.sm_count;
  const double rounds = std::floor(work.blocks / a_round);
  const double rest = work.blocks - rounds * a_round;
  return rounds * round_us(work.resident) +
         (rest > 0 ? round_us(std::ceil(rest / device.sm_count)) : 0);
}

// ---- forward and grad_input ----

// Channels of a last, partial slab are walked by a loop that is not unrolled: about twice the time.
double walked_depth(int64_t depth, const Tile& tile) {
  return double(depth) + double(depth % tile.depth);
}

struct GatherAxisShape {
  double steps = 0;    // taps of an average phase (stacked: source offsets)
  int64_t phases = 1;  // all of them
  int64_t positions = 0;
};

GatherAxisShape axis_shape(const Axis& axis, bool forward, bool stacked) {
  GatherAxisShape shape;
  if (!forward) {
    shape.steps = double(axis.kernel);
    shape.positions = axis.in;
    return shape;
  }
  shape.phases = std::min(axis.stride, axis.out);
  shape.positions = ceil_ratio(axis.out, axis.stride);
  // Every tap belongs to exactly one residue; phases beyond the output take their taps with them.
  shape.steps = stacked ? double(forward_offsets(axis).count) : double(axis.kernel) / axis.stride;
  return shape;
}

struct GatherCandidate {
  GatherRow row;
  double blocks = 0;
  double us = 0;
};

// Bytes over the copy rate. Stores of one phase alone touch every stride_w-th element of a row, so
// each 32-byte sector goes to the L2 cache once a phase; the H200 takes those at about 0.65 of its copy rate
// (kernelbench_1_75 and _81 forward, separate, 2025-11: 2.5 and 3.0 TB/s of sectors).
double memory_us(const Problem& problem, const Device& device, bool whole_rows, int64_t phases_w) {
  const double bytes = tensor_bytes(problem);
  const bool forward = problem.direction == Direction::fwd;
  if (!forward || whole_rows || problem.y_layout == Layout::nhwc) {
    return bytes / device.copy_bytes_per_us;
  }
  const int64_t size = element_size(problem.dtype);
  const double written = double(problem.batch) * double(problem.out_channels) *
                         double(problem.h.out) * double(problem.w.out) * double(size);
  const double sectors = written * double(std::min<int64_t>(phases_w, 32 / size));
  return std::max(bytes, sectors / 0.65) / device.copy_bytes_per_us;
}

// What a tile costs beside its products shows where the sums are short. Measured over predicted on the
// H200, strict fp32, 2026-11-21: 1.7 at 16 products, 1.5 at 32 and 48, 1.25 at 64 and 128, 1.1 at 256.
double short_sums(const Problem& problem) {
  const bool forward = problem.direction == Direction::fwd;
  const double results = double(problem.batch) *
                         (forward ? double(problem.out_channels) * problem.h.out * problem.w.out
                                  : double(problem.in_channels) * problem.h.in * problem.w.in);
  return std::clamp(1 + 16 * results / std::max(valid_macs(problem), 1.0), 1.0, 1.9);
}

bool fits(const GatherRow& row, int64_t phases_h, int64_t phases_w, const Problem& problem,
          const Device& device) {
  const Tile& tile = kGatherTiles[row.tile];
  if (row.stack_h && (phases_h == 1 || phases_h > tile.columns)) return false;
  if (row.mode_w == PhaseMode::separate) return true;
  if (phases_w == 1) return false;
  if (row.mode_w == PhaseMode::stacked) {
    return phases_w <= tile.columns && phases_w * (row.stack_h ? phases_h : 1) <= tile.columns;
  }
  const bool wide = problem.dtype == DType::f64;
  return problem.y_layout != Layout::nhwc && phases_w <= 16 &&
         looped_bytes(tile, phases_w, wide) + (48 << 10) <= device.smem_optin;
}

GatherCandidate gather_candidate(const Problem& problem, const Device& device, GatherRow row) {
  const bool forward = problem.direction == Direction::fwd;
  const bool wide = problem.dtype == DType::f64;
  const bool stack_w = row.mode_w == PhaseMode::stacked, loop_w = row.mode_w == PhaseMode::looped;
  const GatherAxisShape h = axis_shape(canonical(problem.h), forward, row.stack_h);
  const GatherAxisShape w = axis_shape(canonical(problem.w), forward, stack_w);
  const int64_t stack = (row.stack_h ? h.phases : 1) * (stack_w ? w.phases : 1);
  const double loops = loop_w ? double(w.phases) : 1;
  const double grid_phases =
      double(row.stack_h ? 1 : h.phases) * double(row.mode_w == PhaseMode::separate ? w.phases : 1);
  const int64_t depth = forward ? problem.group_in() : problem.group_out();
  const int64_t columns = forward ? problem.group_out() : problem.group_in();
  const double pixels = double(problem.batch) * double(h.positions) * double(w.positions);

  const Tile tile = fitted(kGatherTiles[row.tile], wide);
  Work work;
  work.threads = tile.threads();
  work.resident = tile.min_blocks;
  if (loop_w) {
    const int64_t bytes = looped_bytes(tile, w.phases, wide) + (32 << 10);
    work.resident =
        int(std::max<int64_t>(1, std::min<int64_t>(work.resident, device.smem_per_sm / bytes)));
  }
  work.blocks = std::ceil(pixels / tile.rows) * double(ceil_ratio(columns, tile.columns / stack)) *
                double(problem.groups) * grid_phases;
  const double taps = h.steps * w.steps * loops;
  work.instructions =
      tile_instructions(tile, taps * walked_depth(depth, tile),
                        taps * double(ceil_ratio(depth, tile.depth)),
                        double((tile.rows + tile.columns) * tile.depth) / tile.threads(),
                        slow_multiply(problem, device)) +
      (loops - 1) * (200 + 10.0 * tile.thread_rows * tile.thread_columns);
  const double us =
      std::max(compute_us(work, device), memory_us(problem, device, stack_w || loop_w, w.phases));
  return {row, work.blocks, kLaunchUs + short_sums(problem) * us};
}

// Measured over predicted on the H200, 2026-11-21, grad_input of dcgan_g1 and fcn32s: 1.4 in fp32 and 1.8 in fp16
// where rows of pixels are contiguous; where channels are, a thread's taps lie far apart: 3.0 and 3.6 in fp16, 2.9
// and 5.7 in TF32.
double dot_correction(const Problem& problem) {
  if (problem.direction == Direction::fwd || problem.dtype == DType::f64) return 1;
  if (problem.y_layout == Layout::nhwc) return 3;
  return element_size(problem.dtype) == 2 ? 1.8 : 1.4;
}

// Few results, long sums.
GatherCandidate dot_candidate(const Problem& problem, const Device& device) {
  const bool forward = problem.direction == Direction::fwd;
  const GatherAxisShape h = axis_shape(canonical(problem.h), forward, false);
  const GatherAxisShape w = axis_shape(canonical(problem.w), forward, false);
  const int64_t depth = forward ? problem.group_in() : problem.group_out();
  const int64_t columns = forward ? problem.group_out() : problem.group_in();
  const double pixels = double(problem.batch) * double(h.positions) * double(w.positions);
  Work work;
  work.threads = kDotThreads;
  work.resident = 4;
  work.blocks = std::ceil(pixels / kDotPixels) * double(ceil_ratio(columns, kDotChannels)) *
                double(problem.groups * h.phases * w.phases);
  const double rounds = std::ceil(double(depth) * h.steps * w.steps / kDotThreads);
  const double one = 110 + kDotPixels * kDotChannels * slow_multiply(problem, device);
  work.instructions = rounds * one + 1000;
  constexpr double latency_us = 0.5;  // of one thread's round: dependent address, load, multiply
  const double turns = std::ceil(work.blocks / (double(work.resident) * device.sm_count));
  const double us = std::max({compute_us(work, device), rounds * latency_us * turns,
                              memory_us(problem, device, false, w.phases)});
  return {{kDotTile, false, PhaseMode::separate},
          work.blocks,
          kLaunchUs + dot_correction(problem) * us};
}

// Few columns: sources straight from global memory, weights in shared memory.
bool strip_fits(int strip, const GatherRow& row, const GatherAxisShape& h, const GatherAxisShape& w,
                const Problem& problem) {
  const bool forward = problem.direction == Direction::fwd;
  const int64_t columns = kStrips[strip].columns;
  const bool stack_w = row.mode_w == PhaseMode::stacked;
  const double stack = double(row.stack_h ? h.phases : 1) * double(stack_w ? w.phases : 1);
  return problem.dtype == DType::f32 && row.mode_w != PhaseMode::looped &&
         (forward ? problem.y_layout : problem.x_layout) != Layout::nhwc &&
         !(row.stack_h && h.phases == 1) && !(stack_w && w.phases == 1) && stack <= columns &&
         std::ceil(h.steps) * std::ceil(w.steps) * double(columns) <= kStripWeights;
}

GatherCandidate strip_candidate(const Problem& problem, const Device& device, int strip_index,
                                GatherRow row) {
  const bool forward = problem.direction == Direction::fwd;
  const bool stack_w = row.mode_w == PhaseMode::stacked;
  const GatherAxisShape h = axis_shape(canonical(problem.h), forward, row.stack_h);
  const GatherAxisShape w = axis_shape(canonical(problem.w), forward, stack_w);
  GatherCandidate result{row, 0, std::numeric_limits<double>::infinity()};
  if (!strip_fits(strip_index, row, h, w, problem)) return result;
  const Strip& strip = kStrips[strip_index];
  const int64_t stack = (row.stack_h ? h.phases : 1) * (stack_w ? w.phases : 1);
  const int64_t depth = forward ? problem.group_in() : problem.group_out();
  const int64_t columns = forward ? problem.group_out() : problem.group_in();
  const double pixels = double(problem.batch) * double(h.positions) * double(w.positions);
  Work work;
  work.threads = kStripThreads;
  work.resident = strip.min_blocks;
  work.blocks = std::ceil(pixels / (strip.pixels * kStripThreads)) *
                double(ceil_ratio(columns, strip.columns / stack)) * double(problem.groups) *
                double(row.stack_h ? 1 : h.phases) * double(stack_w ? 1 : w.phases);
  const double steps = h.steps * w.steps, products = steps * double(depth);
  const double outer = strip.columns * strip.pixels;
  work.instructions =
      strip.correction *
          (products * (outer + strip.columns / 4.0 + 4.0 * strip.pixels + 0.2 * strip.columns) +
           steps * (20 + 10 * strip.pixels)) +
      outer * 10 + 800;
  // Phases of a row in a thread: its outputs are not its neighbours' (1.6 to 2 times what is counted).
  const double scattered = stack_w ? 1.6 : 1;
  const double us =
      std::max(compute_us(work, device), memory_us(problem, device, stack_w, w.phases));
  result.blocks = work.blocks;
  result.us = kLaunchUs + scattered * us;
  return result;
}

// Few channels a group: all of a group's weights in shared memory, all phases of w in a thread.
GatherCandidate group_candidate(const Problem& problem, const Device& device) {
  GatherCandidate result{
      {kGroupTile, false, PhaseMode::separate}, 0, std::numeric_limits<double>::infinity()};
  if (problem.direction != Direction::fwd || problem.dtype != DType::f32 ||
      problem.y_layout == Layout::nhwc || problem.wide_index ||
      2 * problem.group_out() <
          kGroupChannels) {  // most sums would be of channels that do not exist
    return result;
  }
  const Axis axis_w = canonical(problem.w);
  const GatherAxisShape h = axis_shape(canonical(problem.h), true, false);
  const GatherAxisShape w = axis_shape(axis_w, true, false);
  const int64_t offsets = forward_offsets(axis_w).count, depth = problem.group_in();
  const int64_t taps = problem.h.kernel * problem.w.kernel;
  const int64_t tiles = ceil_ratio(problem.group_out(), kGroupChannels);
  if (w.phases > kGroupPhases || offsets > kGroupOffsets || depth > kGroupWeights ||
      taps > kGroupWeights || depth * taps * tiles > kGroupWeights / kGroupChannels) {
    return result;
  }
  const double slots = kGroupSlots[w.phases - 1], positions = slots * 32;
  Work work;
  work.threads = kGroupThreads;
  work.resident = kGroupBlocks[w.phases - 1];
  const double tasks = std::ceil(double(problem.batch * h.positions * w.positions) / positions) *
                       double(h.phases * tiles * problem.groups);
  work.blocks = std::ceil(tasks / (kGroupThreads / 32));
  work.instructions =
      kGroupCorrection * h.steps *
          (double(depth) * (double(offsets) * 4 * slots +
                            double(problem.w.kernel) * (kGroupChannels * slots + 4)) +
           double(offsets) * (40 + 10 * slots)) +
      slots * (60 + 5.0 * double(w.phases) * kGroupChannels) + 200;
  result.blocks = work.blocks;
  result.us = kLaunchUs + std::max(compute_us(work, device), memory_us(problem, device, true, 1));
  return result;
}

const char* name(PhaseMode mode) {
  return mode == PhaseMode::stacked ? " stacked w" : mode == PhaseMode::looped ? " looped w" : "";
}

// What strips of grad_input, whose threads wait for what they load, take over the greater of multiplying and memory, for other
// families to compare with: erfnet_out in TF32 took 221 us on an H200 and 261 on an H100 for 159 predicted, and memory 95 and 136.
double shown_memory_us(const GatherCandidate& best, const Problem& problem, const Device& device) {
  constexpr double kShown = 0.65;
  const bool strip = best.row.tile >= kFirstStrip && best.row.tile != kGroupTile;
  if (!strip || problem.direction == Direction::fwd) return 0;
  const double memory = tensor_bytes(problem) / device.copy_bytes_per_us;
  return kShown * std::min(memory, best.us - kLaunchUs);
}

Plan gather_plan(const Problem& problem, const Device& device) {
  const bool forward = problem.direction == Direction::fwd;
  const int64_t phases_h = axis_shape(canonical(problem.h), forward, false).phases;
  const int64_t phases_w = axis_shape(canonical(problem.w), forward, false).phases;
  GatherCandidate best = dot_candidate(problem, device);
  for (int row = 0; row < gather_tiles(problem.dtype) * 6; ++row) {
    const GatherRow way = GatherRow::decode(row);
    if (!fits(way, phases_h, phases_w, problem, device)) continue;
    const GatherCandidate candidate = gather_candidate(problem, device, way);
    if (candidate.us < best.us) best = candidate;
  }
  for (int strip = 0; strip < kStripCount; ++strip) {
    for (int way = 0; way < 6; ++way) {
      const GatherRow row = GatherRow::decode((kFirstStrip + strip) * 6 + way);
      const GatherCandidate candidate = strip_candidate(problem, device, strip, row);
      if (candidate.us < best.us) best = candidate;
    }
  }
  const GatherCandidate group = group_candidate(problem, device);
  if (group.us < best.us) best = group;
  char note[96];
  if (best.row.tile == kGroupTile) {
    std::snprintf(note, sizeof note, "group %d channels, %.0f blocks", kGroupChannels, best.blocks);
  } else if (best.row.tile >= kFirstStrip) {
    const Strip& strip = kStrips[best.row.tile - kFirstStrip];
    std::snprintf(note, sizeof note, "strip %dx%d%s%s, %.0f blocks", strip.pixels * kStripThreads,
                  strip.columns, best.row.stack_h ? " stacked h" : "", name(best.row.mode_w),
                  best.blocks);
  } else if (best.row.tile == kDotTile) {
    std::snprintf(note, sizeof note, "dot %dx%d, %.0f blocks", kDotPixels, kDotChannels,
                  best.blocks);
  } else {
    const Tile& tile = kGatherTiles[best.row.tile];
    std::snprintf(note, sizeof note, "%dx%dx%d%s%s, %.0f blocks", tile.rows, tile.columns,
                  tile.depth, best.row.stack_h ? " stacked h" : "", name(best.row.mode_w),
                  best.blocks);
  }
  Plan plan;
  plan.row = best.row.encode();
  plan.predicted_us = best.us + shown_memory_us(best, problem, device);
  plan.note = note;
  return plan;
}

// ---- grad_weight ----

// Enough blocks for several waves of any GPU, pieces of at least 32 slabs, at most 32 MiB of partial
// sums. A function of the shape alone, so results do not depend on the GPU.
int32_t weight_split(const Problem& problem, const Tile& tile, double tiles) {
  constexpr double wanted_blocks = 1056;
  const double pixels = double(problem.batch) * double(problem.h.in) * double(problem.w.in);
  const double partial = double(weight_elements(problem)) * double(accumulator_size(problem.dtype));
  const double most =
      std::min(std::floor(kWorkspaceLimit / partial), std::ceil(pixels / (32.0 * tile.depth)));
  return static_cast<int32_t>(std::max(1.0, std::min(most, std::ceil(wanted_blocks / tiles))));
}

// Measured over predicted on the H200, 44 layers each, 2026-11-21: fp16 2.07 (NCHW) and 2.26 (NHWC), fp32 1.20
// and 1.46. All but 4 of the 176 lie within 1.5 times that.
double weight_correction(const Problem& problem) {
  const bool rows = problem.x_layout != Layout::nhwc;
  if (problem.dtype == DType::f64) return 1;
  return element_size(problem.dtype) == 2 ? (rows ? 2.07 : 2.26) : rows ? 1.2 : 1.46;
}

Plan weight_plan(const Problem& problem, const Device& device) {
  const double columns = double(problem.group_out() * problem.h.kernel * problem.w.kernel);
  const double pixels = double(problem.batch) * double(problem.h.in) * double(problem.w.in);
  const int64_t elements = weight_elements(problem);
  Plan best;
  for (int row = 0; row < weight_tiles(problem.dtype); ++row) {
    const Tile tile = fitted(kWeightTiles[row], problem.dtype == DType::f64);
    const double tiles = std::ceil(columns / tile.columns) *
                         double(ceil_ratio(problem.group_in(), tile.rows) * problem.groups);
    Plan plan;
    plan.row = row;
    plan.split = weight_split(problem, tile, tiles);
    Work work;
    work.threads = tile.threads();
    work.resident = tile.min_blocks;
    work.blocks = tiles * plan.split;
    const double products = pixels / plan.split;
    work.instructions =
        tile_instructions(tile, products, products / tile.depth,
                          (tile.rows + 2.5 * tile.columns) * tile.depth / tile.threads(),
                          slow_multiply(problem, device));
    if (plan.split > 1) {
      plan.workspace_bytes = elements * plan.split * accumulator_size(problem.dtype);
    }
    const double traffic = tensor_bytes(problem) + 2.0 * double(plan.workspace_bytes);
    plan.predicted_us = kLaunchUs * (plan.split > 1 ? 2 : 1) +
                        weight_correction(problem) *
                            std::max(compute_us(work, device), traffic / device.copy_bytes_per_us);
    if (row > 0 && plan.predicted_us >= best.predicted_us) continue;
    char note[96];
    std::snprintf(note, sizeof note, "%dx%dx%d, split %d, %.0f blocks", tile.rows, tile.columns,
                  tile.depth, plan.split, work.blocks);
    plan.note = note;
    best = plan;
  }
  add_grad_bias(problem, device, kLaunchUs, best);
  return best;
}

Decision plan(const Problem& problem, const Device& device) {
  return Decision::accept(problem.direction == Direction::grad_weight
                              ? weight_plan(problem, device)
                              : gather_plan(problem, device));
}

void launch(const Problem& problem, const Plan& plan, const Args& args) {
  if (problem.direction == Direction::grad_weight) {
    launch_grad_weight(problem, plan, args);
  } else {
    launch_gather(problem, plan, args);
  }
}

}  // namespace

int64_t weight_elements(const Problem& problem) {
  return problem.in_channels * problem.group_out() * problem.h.kernel * problem.w.kernel;
}

int64_t piece_pixels(int64_t pixels, int32_t split, const Tile& tile) {
  return ceil_ratio(ceil_ratio(pixels, split), tile.depth) * tile.depth;
}

}  // namespace direct

const Family direct_family = {"direct", direct::plan, direct::launch};

}  // namespace convt2d::cuda
