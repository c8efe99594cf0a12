#include "cuda/depthwise/depthwise_pixels.h"

#include "cuda/weight_sum.h"

namespace convt2d::cuda::depthwise {
namespace {

constexpr int kMostChannels = 64;

// A slice of up to kMostChannels channels, fewer while `rows` rows of weights do not fit.
StagedSlice staged_slice(int64_t all, int vector, int64_t rows, int columns) {
  const int64_t slices = blocks_of(all, kMostChannels);
  StagedSlice w{};
  w.columns = columns;
  w.channels = int(round_up(blocks_of(all, slices), vector));
  const auto pitch = [](int channels) { return int(round_up(channels, 4)) + 4; };
  while (w.channels > vector && rows * columns * pitch(w.channels) * 4 > kSharedTarget) {
    w.channels = int(round_up(w.channels / 2, vector));
  }
  w.pitch = pitch(w.channels);
  w.by_columns = FastDivide(w.columns);
  w.by_channels = FastDivide(w.channels);
  return w;
}

}  // namespace

PixelForwardTile pixel_forward_tile(const Problem& problem, const ClassAxis& h, const ClassAxis& v,
                                    int vector) {
  const int taps = pixel_taps(problem, h, v, vector);
  PixelForwardTile t{};
  t.tap_blocks = int(std::max<int64_t>(1, blocks_of(v.taps, taps)));
  t.padded_taps = v.ragged || v.taps % taps != 0;
  t.tap_rows = int(round_up(h.taps, pixel_rows(taps, vector)));
  t.w = staged_slice(problem.out_channels, vector, t.tap_rows, t.tap_blocks * taps * v.step);
  t.lanes = t.w.channels / vector;
  const int64_t slices = blocks_of(problem.out_channels, t.w.channels);
  const int phase_rows = int(blocks_of(h.out, h.stride));
  t.runs = int(blocks_of(blocks_of(v.out, v.period), kPixels));
  const int64_t row_items = int64_t{t.lanes} * v.period * t.runs;
  const int64_t images = problem.batch * slices * h.stride;

  // Enough rows for a few items a thread, while there are enough blocks. Measured: with 8 channels a
  // thread fewer, for more blocks, with 4 not.
  const int items = vector == 8 ? 4 : 8;
  int64_t rows = std::min<int64_t>(phase_rows, std::max<int64_t>(1, items * kThreads / row_items));
  while (rows > 1 && images * blocks_of(phase_rows, rows) < kEnoughBlocks) --rows;
  rows = blocks_of(phase_rows, blocks_of(phase_rows, rows));
  t.rows = int(rows);
  t.items = int(std::min<int64_t>(row_items, INT32_MAX));
  t.row_slots = int(std::clamp<int64_t>(kThreads / row_items, 1, rows));
  const int64_t row_groups = blocks_of(phase_rows, rows);
  t.blocks = images * row_groups;
  t.shared_bytes =
      int(std::min<int64_t>(int64_t{t.tap_rows} * t.w.columns * t.w.pitch * 4, INT32_MAX));
  t.by_slices = FastDivide(slices);
  t.by_phases = FastDivide(h.stride);
  t.by_row_groups = FastDivide(row_groups);
  t.by_lanes = FastDivide(t.lanes);
  t.by_items = FastDivide(t.items);
  t.by_period = FastDivide(v.period);
  return t;
}

PixelGradInputTile pixel_grad_input_tile(const Problem& problem, const ClassAxis& h,
                                         const ClassAxis& v, int vector) {
  const int taps = pixel_taps(problem, h, v, vector);
  PixelGradInputTile t{};
  t.tap_blocks = int(std::max<int64_t>(1, blocks_of(v.taps, taps)));
  t.w = staged_slice(problem.in_channels, vector, 1, t.tap_blocks * taps * v.step);
  t.lanes = t.w.channels / vector;
  const int64_t slices = blocks_of(problem.in_channels, t.w.channels);
  t.runs = int(blocks_of(blocks_of(v.in, v.reach), kPixels));
  const int64_t items = int64_t{t.lanes} * v.reach * t.runs * h.in;
  t.items = int(std::min<int64_t>(items, INT32_MAX));

  // Where the outputs alone cannot fill the GPU, threads share one and take every n-th kernel row.
  const int64_t all_items = problem.batch * slices * items;
  t.sharers = 1;
  while (t.sharers < 8 && t.sharers < h.kernel &&
         all_items * t.sharers < kEnoughBlocks * kThreads) {
    t.sharers *= 2;
  }
  t.block_items = kThreads / t.sharers;
  const int64_t row_bytes = int64_t{t.w.columns} * t.w.pitch * 4;
  t.weight_rows = int(std::min<int64_t>(h.kernel, std::max<int64_t>(1, kSharedTarget / row_bytes)));
  const int64_t sums = t.sharers > 1 ? int64_t{kThreads} * kPixels * vector * 4 : 0;
  t.shared_bytes = int(std::min<int64_t>(std::max(t.weight_rows * row_bytes, sums), INT32_MAX));
  const int64_t item_blocks = blocks_of(items, t.block_items);
  t.blocks = problem.batch * slices * item_blocks;
  t.by_slices = FastDivide(slices);
  t.by_item_blocks = FastDivide(item_blocks);
  t.by_lanes = FastDivide(t.lanes);
  t.by_residues = FastDivide(v.reach);
  t.by_runs = FastDivide(t.runs);
  return t;
}

PixelGradWeightTile pixel_grad_weight_tile(const Problem& problem, const ClassAxis& h,
                                           const ClassAxis& v, int vector) {
  const int taps = pixel_taps(problem, h, v, vector);
  PixelGradWeightTile t{};
  t.channels = staged_slice(problem.out_channels, vector, 0, 1).channels;
  t.lanes = t.channels / vector;
  const int64_t slices = blocks_of(problem.out_channels, t.channels);
  t.tap_blocks_h = int(blocks_of(h.taps, taps));
  t.tap_blocks_v = int(blocks_of(v.taps, taps));
  const int64_t classes = int64_t{t.tap_blocks_h} * t.tap_blocks_v * h.stride * v.stride;
  const int slots = kThreads / t.lanes;
  t.classes = int(std::min<int64_t>(classes, INT32_MAX));
  t.class_slots = std::min(t.classes, slots);
  t.class_groups = int(blocks_of(t.classes, t.class_slots));
  t.item_slots = slots / t.class_slots;
  t.runs = int(blocks_of(blocks_of(v.out, v.period), kPixels));
  t.row_runs = v.reach * t.runs;

  const int64_t phase_rows = blocks_of(h.out, h.stride);
  const int64_t units = problem.batch * phase_rows;
  const int64_t base = slices * t.class_groups;
  const int64_t row_bytes =
      problem.out_channels * (int64_t{h.kernel} * v.kernel + t.class_groups) * 4;
  int64_t split = std::min({units, blocks_of(kEnoughBlocks, base), kWorkspaceLimit / row_bytes});
  split = std::max<int64_t>(split, 1);
  t.units = int(std::min<int64_t>(units, INT32_MAX));
  t.units_a_block = int(blocks_of(units, split));
  t.split = int(blocks_of(units, t.units_a_block));
  t.blocks = base * t.split;
  t.shared_bytes = 4 * (kThreads * vector * (taps * taps + 1));
  t.by_split = FastDivide(t.split);
  t.by_class_groups = FastDivide(t.class_groups);
  t.by_lanes = FastDivide(t.lanes);
  t.by_class_slots = FastDivide(t.class_slots);
  t.by_phases_v = FastDivide(v.stride);
  t.by_phases_h = FastDivide(h.stride);
  t.by_tap_blocks_v = FastDivide(t.tap_blocks_v);
  t.by_row_runs = FastDivide(t.row_runs);
  t.by_rows = FastDivide(phase_rows);
  t.by_runs = FastDivide(t.runs);
  return t;
}

}  // namespace convt2d::cuda::depthwise
