#include "cuda/depthwise/depthwise_planes.h"

#include "cuda/depthwise/depthwise_strips.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda::depthwise {
namespace {

constexpr int kMostColumns = 256;
constexpr int64_t kStripRounds = 8;     // strips that a thread does one after the other, at most
constexpr int64_t kStripBlocks = 2048;  // fewer strips a thread while there are fewer blocks of 128

// Splits `extent` into equal tiles of at most `most`, each a multiple of `unit`.
int even_tile(int64_t extent, int64_t most, int unit) {
  const int64_t tiles = blocks_of(extent, std::max<int64_t>(most / unit * unit, unit));
  return int(round_up(blocks_of(extent, tiles), unit));
}

StagedX staged_x(const ClassAxis& v, int columns, int runs, int tap_blocks, int taps) {
  // x columns under `columns` neighbouring y columns, from an even one on; never more than there are.
  const int64_t span = (int64_t{columns} - 1 + int64_t{v.kernel - 1} * v.dilation) / v.stride + 3;
  StagedX x{};
  x.columns = int(round_up(std::min<int64_t>(v.in, span), kPair)) + kPair;
  x.lead = tap_blocks * taps - 1;
  x.quads = int(blocks_of(runs * kRun + (tap_blocks - 1) * taps + 4, 4));
  x.pitch = (x.quads | 1) * 4;
  x.by_across = FastDivide(std::min(x.columns / kPair, kThreads));
  x.by_quads = FastDivide(x.quads);
  return x;
}

int64_t bytes_of(const StagedX& x) { return int64_t{x.columns} * x.pitch * 4; }

StagedWeights staged_weights(const ClassAxis& h, const ClassAxis& v, int tap_blocks, int taps) {
  StagedWeights w{};
  w.pitch = taps == 3 ? 4 : tap_blocks * taps;
  w.plane = int(round_up(int64_t{h.stride} * v.kernel * w.pitch + 1, 4));
  w.by_plane = FastDivide(w.plane);
  w.by_pitch = FastDivide(w.pitch);
  w.by_kernel_v = FastDivide(v.kernel);
  return w;
}

int clamped(int64_t bytes) { return int(std::min<int64_t>(bytes, INT32_MAX)); }

}  // namespace

PlaneForwardTile plane_forward_tile(const Problem& problem, const ClassAxis& h,
                                    const ClassAxis& v) {
  const int taps = plane_taps(problem, h, v);
  const int64_t planes = problem.batch * problem.out_channels;
  const int class_rows = int(blocks_of(h.out, h.period));

  PlaneForwardTile t{};
  t.tap_blocks_h = int(blocks_of(h.taps, taps));
  t.tap_blocks_v = int(blocks_of(v.taps, taps));
  t.padded_taps = h.ragged || h.taps % taps != 0;
  t.w = staged_weights(h, v, t.tap_blocks_h, taps);
  const auto bytes = [&](int columns, int runs) {
    return bytes_of(staged_x(v, columns, runs, t.tap_blocks_h, taps)) + t.w.plane * 4;
  };

  t.columns = even_tile(v.out, kMostColumns, 16);
  while (t.columns > 32 && bytes(t.columns, 1) > kSharedTarget) {
    t.columns = even_tile(v.out, t.columns / 2, 16);
  }
  t.columns = std::min(t.columns, int(round_up(v.out, kPair)));
  t.slots = t.columns / kPair;
  t.task_slots = kThreads / t.slots;
  const int64_t tiles_v = blocks_of(v.out, t.columns);

  // As many runs as keep every thread busy a few times, while the tile stays small enough for
  // several blocks a multiprocessor and there are enough blocks.
  int most = std::max(1, 4 * t.task_slots / h.stride);
  while (most > 1 && bytes(t.columns, most) > kSharedTarget) --most;
  while (most > 1 &&
         planes * tiles_v * h.reach * blocks_of(class_rows, most * kRun) < kEnoughBlocks) {
    most = (most + 1) / 2;
  }
  t.runs = even_tile(blocks_of(class_rows, kRun), most, 1);
  t.tasks = h.stride * t.runs;
  const int64_t tiles_h = blocks_of(class_rows, t.runs * kRun);

  // Small planes share a block.
  t.planes = int(std::min<int64_t>(planes, std::max(1, 4 * t.task_slots / t.tasks)));
  while (t.planes > 1 && (t.planes * bytes(t.columns, t.runs) > kSharedTarget ||
                          blocks_of(planes, t.planes) * tiles_v * tiles_h < kEnoughBlocks)) {
    --t.planes;
  }
  t.x = staged_x(v, t.columns, t.runs, t.tap_blocks_h, taps);
  t.shared_bytes = clamped(t.planes * bytes(t.columns, t.runs));
  t.blocks = blocks_of(planes, t.planes) * h.reach * tiles_h * tiles_v;
  t.by_tiles_v = FastDivide(tiles_v);
  t.by_tiles_h = FastDivide(tiles_h);
  t.by_reach = FastDivide(h.reach);
  t.by_slots = FastDivide(t.slots);
  t.by_runs = FastDivide(t.runs);
  t.by_phases = FastDivide(h.stride);
  return t;
}

PlaneGradInputTile plane_grad_input_tile(const Problem& problem, const ClassAxis& h,
                                         const ClassAxis& v) {
  const int taps = plane_taps(problem, h, v);
  const int64_t planes = problem.batch * problem.in_channels;
  const int class_rows = int(blocks_of(h.in, h.reach));

  PlaneGradInputTile t{};
  t.tap_blocks_h = int(blocks_of(h.taps, taps));
  t.tap_blocks_v = int(blocks_of(v.taps, taps));
  t.w = staged_weights(h, v, t.tap_blocks_h, taps);
  const auto columns_of = [&](int x_columns) {  // of y, from an even one on
    const int64_t span = int64_t{x_columns - 1} * v.stride + int64_t{v.kernel - 1} * v.dilation + 2;
    return int(round_up(std::min<int64_t>(span, v.out), kPair));
  };
  const auto share_pitch = [](int runs) { return (runs * kRun / 4 | 1) * 4; };
  const auto bytes = [&](int x_columns, int runs) {
    const int64_t shares =
        int64_t{columns_of(x_columns)} * t.tap_blocks_v * taps * share_pitch(runs);
    return (shares + t.w.plane) * 4;
  };

  t.x_columns = even_tile(v.in, std::max(1, kMostColumns / v.stride), 1);
  while (t.x_columns > 1 &&
         (bytes(t.x_columns, 1) > kSharedTarget || columns_of(t.x_columns) > kPair * kThreads)) {
    t.x_columns = even_tile(v.in, t.x_columns / 2, 1);
  }
  t.columns = columns_of(t.x_columns);
  t.slots = t.columns / kPair;
  const int64_t tiles_v = blocks_of(v.in, t.x_columns);

  int most = std::max(1, kThreads / t.slots);
  while (most > 1 && bytes(t.x_columns, most) > kSharedTarget) --most;
  t.runs = even_tile(blocks_of(class_rows, kRun), most, 1);
  const int64_t tiles_h = blocks_of(class_rows, t.runs * kRun);
  t.planes = int(std::min<int64_t>(planes, std::max(1, kThreads / (t.slots * t.runs))));
  while (t.planes > 1 && (t.planes * bytes(t.x_columns, t.runs) > kSharedTarget ||
                          blocks_of(planes, t.planes) * tiles_v * tiles_h < kEnoughBlocks)) {
    --t.planes;
  }
  t.threads = int(round_up(t.planes * t.slots * t.runs, 32));  // above kThreads: declined

  // Several tiles down a plane share the weights and the set-up, while there are enough blocks.
  const int64_t columns_of_tiles = blocks_of(planes, t.planes) * h.reach * tiles_v;
  t.steps = int(std::min<int64_t>(tiles_h, 8));
  while (t.steps > 1 && columns_of_tiles * blocks_of(tiles_h, t.steps) < 2 * kEnoughBlocks) {
    --t.steps;
  }
  const int64_t step_groups = blocks_of(tiles_h, t.steps);
  t.share_pitch = share_pitch(t.runs);
  t.shared_bytes = clamped(t.planes * bytes(t.x_columns, t.runs));
  t.blocks = columns_of_tiles * step_groups;
  t.by_tiles_v = FastDivide(tiles_v);
  t.by_tiles_h = FastDivide(step_groups);
  t.by_reach = FastDivide(h.reach);
  t.by_slots = FastDivide(t.slots);
  t.by_runs = FastDivide(t.runs);
  t.by_x_columns = FastDivide(t.x_columns);
  t.by_quads = FastDivide(t.runs * kRun / 4);
  return t;
}

PlaneGradWeightTile plane_grad_weight_tile(const Problem& problem, const ClassAxis& h,
                                           const ClassAxis& v) {
  const int taps = plane_taps(problem, h, v);
  const int class_rows = int(blocks_of(h.out, h.period));

  PlaneGradWeightTile t{};
  t.tap_blocks_h = int(blocks_of(h.taps, taps));
  t.tap_blocks_v = int(blocks_of(v.taps, taps));
  const auto bytes = [&](int columns, int runs) {
    return bytes_of(staged_x(v, columns, runs, t.tap_blocks_h, taps));
  };

  // Tiles start at a multiple of the stride, so that a thread's columns keep their phase.
  const int unit = v.stride % 2 == 0 ? v.stride : 2 * v.stride;
  t.columns = even_tile(v.out, kMostColumns, unit);
  while (t.columns > std::max(32, unit) && bytes(t.columns, 1) > kSharedTarget) {
    t.columns = even_tile(v.out, t.columns / 2, unit);
  }
  t.columns = std::min(t.columns, int(round_up(v.out, kPair)));
  t.slots = t.columns / kPair;
  t.task_slots = kThreads / t.slots;
  t.phase_slots = std::min(h.stride, t.task_slots);
  t.phase_groups = int(blocks_of(h.stride, t.phase_slots));
  t.run_slots = t.task_slots / t.phase_slots;
  const int64_t tiles_v = blocks_of(v.out, t.columns);

  int most = 4 * t.run_slots;
  while (most > 1 && bytes(t.columns, most) > kSharedTarget) --most;
  t.runs = even_tile(blocks_of(class_rows, kRun), most, 1);
  const int64_t tiles_h = blocks_of(class_rows, t.runs * kRun);
  t.x = staged_x(v, t.columns, t.runs, t.tap_blocks_h, taps);
  t.images = int(std::min<int64_t>(problem.batch, std::max(1, 4 * t.run_slots / t.runs)));
  while (t.images > 1 && t.images * bytes_of(t.x) > kSharedTarget) --t.images;

  const int64_t units = blocks_of(problem.batch, t.images) * h.reach * tiles_h * tiles_v;
  const int64_t base =
      problem.out_channels * t.phase_groups * int64_t{t.tap_blocks_h} * t.tap_blocks_v;
  const int64_t row_bytes =
      problem.out_channels * (int64_t{h.kernel} * v.kernel + t.phase_groups) * 4;
  int64_t split = std::min({units, blocks_of(kSplitBlocks, base), kWorkspaceLimit / row_bytes});
  split = std::max<int64_t>(split, 1);
  t.units = clamped(units);
  t.units_a_block = int(blocks_of(units, split));
  t.split = int(blocks_of(units, t.units_a_block));
  t.blocks = base * t.split;

  const int64_t sums = int64_t{4} * t.task_slots * t.columns * (taps * taps + 1);
  t.shared_bytes = clamped(std::max(t.images * bytes_of(t.x), sums));
  t.by_split = FastDivide(t.split);
  t.by_phase_groups = FastDivide(t.phase_groups);
  t.by_tap_blocks_h = FastDivide(t.tap_blocks_h);
  t.by_tap_blocks_v = FastDivide(t.tap_blocks_v);
  t.by_tiles_v = FastDivide(tiles_v);
  t.by_tiles_h = FastDivide(tiles_h);
  t.by_reach = FastDivide(h.reach);
  t.by_phase_slots = FastDivide(t.phase_slots);
  t.by_runs = FastDivide(t.runs);
  t.by_kernel_v = FastDivide(v.kernel);
  return t;
}

int strip_kernel(const Problem& problem, const ClassAxis& h, const ClassAxis& v, int largest_run) {
  const int taps = std::max(h.taps, v.taps);
  const auto serves = [&](const StripKernel& kernel) {
    if (kernel.taps < taps) return false;
    if (kernel.run == 1) return kernel.taps == 2 || v.stride <= 2;
    if (kernel.run > largest_run || v.out % kernel.run != 0 || v.reach != 1) return false;
    // Beyond span == run, a run may cross from one input to the next only once.
    return kernel.span == v.stride || (kernel.span == kernel.run && v.stride >= kernel.run - 1);
  };
  const bool strips = problem.direction == Direction::fwd && problem.y_layout == Layout::nchw &&
                      problem.batch * blocks_of(h.out, h.period) < INT32_MAX / 2;
  if (!strips) return -1;
  const auto find = [&](const auto& kernels) {
    int best = -1, index = 0;
    for (const StripKernel& kernel : kernels) {
      if (serves(kernel) && (best < 0 || kernel.run > kernels[best].run)) best = index;
      ++index;
    }
    return best;
  };
  return element_size(problem.dtype) == 4 ? find(strip_kernels<4>()) : find(strip_kernels<2>());
}

bool strip_centred(const ClassAxis& h, const ClassAxis& v, const StripKernel& kernel, int x_unit) {
  const int past = strip_past(kernel.span, kernel.taps), wide = kernel.run / kernel.span;
  const auto fits = [&](const ClassAxis& a) {
    return a.stride == kernel.span && a.reach == 1 && (a.near_pad - past) % kernel.span == 0;
  };
  // Threads start `wide` columns apart, so the first one tells for all.
  const int lead = wide > 1 ? kernel.taps / 2 : 0;
  const int middle = (v.near_pad - past) / kernel.span - (kernel.taps - 1) + lead;
  return kernel.run > 1 && fits(v) && (kernel.span != 2 || fits(h)) && middle % wide == 0 &&
         v.in % wide == 0 && x_unit % wide == 0;
}

StripTile strip_tile(const Problem& problem, const ClassAxis& h, const ClassAxis& v,
                     const StripKernel& kernel, bool centred) {
  StripTile t{};
  const int at_once = centred && kernel.span == 2 ? 2 : 1;
  const int all_groups = int(blocks_of(v.out, kernel.run)), all_classes = h.period / at_once;
  const int64_t tiles = blocks_of(all_groups, kStripThreads);
  t.groups = int(blocks_of(all_groups, tiles));
  t.table_pitch = kernel.taps * v.stride * (kernel.taps + 2);  // of one class
  const int most = kStripThreads / t.groups;
  t.classes =
      std::max(1, std::min({most, all_classes, kSharedTarget / 4 / at_once / t.table_pitch}));
  const int64_t class_groups = blocks_of(all_classes, t.classes);
  t.classes = int(blocks_of(all_classes, class_groups));

  t.strips = int(blocks_of(blocks_of(h.out, h.period), strip_rows(kernel.run)));
  t.units = int(problem.batch * t.strips);
  t.slots = int(std::min<int64_t>(most / t.classes, t.units));
  // Half a block of threads is enough where it wastes no more.
  const int half = kStripThreads / 2 / (t.groups * t.classes);
  if (half > 0 && t.slots > half && 2 * half >= most / t.classes) t.slots = half;
  t.threads = int(round_up(int64_t{t.groups} * t.classes * t.slots, 32));

  const int64_t base = tiles * class_groups * problem.out_channels;
  const int64_t rounds = blocks_of(t.units, t.slots);
  // Measured: with 4 outputs a thread, shorter walks.
  const bool narrow = kernel.run == 4;
  const int64_t blocks = narrow ? 2 * kStripBlocks : kStripBlocks;
  const int64_t few = std::max<int64_t>(1, base * rounds * t.threads / (blocks * 128));
  const int64_t most_rounds = narrow ? kStripRounds / 2 : kStripRounds;
  t.units_a_block = int(std::min({few, most_rounds, rounds}) * t.slots);
  t.shared_bytes = clamped(int64_t{t.classes} * at_once * t.table_pitch * 4);
  t.blocks = base * blocks_of(t.units, t.units_a_block);
  t.by_columns = FastDivide(tiles);
  t.by_class_groups = FastDivide(class_groups);
  t.by_channels = FastDivide(problem.out_channels);
  t.by_groups = FastDivide(t.groups);
  t.by_classes = FastDivide(t.classes);
  t.by_strips = FastDivide(t.strips);
  return t;
}

}  // namespace convt2d::cuda::depthwise
