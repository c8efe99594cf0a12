#include "cuda/depthwise/depthwise_walks.h"

#include "core/phases.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda::depthwise {
namespace {

constexpr int kMostChannels = 64;
// Blocks that an H200 holds at once. How sums of grad_weight are cut follows from it.
constexpr int64_t kInputBlocks = 264, kSquareBlocks = 132;

int taps_of(const Problem& problem) {
  const auto of = [](const Axis& a) { return int(blocks_of(a.kernel, a.stride)); };
  return std::max(of(problem.h), of(problem.w));
}

// Equal slices of at most `most` channels, in whole vectors.
int channel_slice(int64_t all, int64_t most, int vector) {
  const int64_t slices = blocks_of(all, std::max<int64_t>(most / vector * vector, vector));
  return int(round_up(blocks_of(all, slices), vector));
}

}  // namespace

bool walks_serve(const Problem& problem) {
  const int bytes = int(element_size(problem.dtype)), vector = walk_vector(bytes);
  const Axis &h = problem.h, &w = problem.w;
  if (problem.y_layout != Layout::nhwc) return false;
  if (problem.group_out() != 1 || problem.in_channels % vector != 0) return false;
  if (h.dilation != 1 || w.dilation != 1 || h.stride != w.stride) return false;
  if (h.near_pad < 0 || w.near_pad < 0) return false;
  const int taps = taps_of(problem);
  if (problem.direction != Direction::grad_input) {
    if (taps > 2 || h.stride % 2 != 0) return false;
    const WalkSquareTile t = walk_square_tile(problem);
    const double positions = double(problem.batch) * t.rows * t.columns;
    return positions < INT32_MAX / 8 && t.threads <= kSquareWalkThreads &&
           t.channels * bytes >= 32 && t.part_floats * 4 * t.split <= kWorkspaceLimit / 2;
  }
  if (taps > kMostWalkTaps || (h.stride != 2 && (h.stride % 4 != 0 || taps > 2))) return false;
  const WalkInputTile t = walk_input_tile(problem);
  return t.threads <= kWalkThreads && t.channels * bytes >= 32 && t.shared_bytes <= kSharedLimit;
}

WalkInputTile walk_input_tile(const Problem& problem) {
  const int vector = walk_vector(int(element_size(problem.dtype)));
  const int stride = int(problem.h.stride);
  WalkInputTile t{};
  t.taps = std::min(taps_of(problem), kMostWalkTaps);
  if (stride > 2) t.taps = std::max(t.taps, 2);
  t.phases = stride == 2 ? 2 : 1;
  t.spread = stride / t.phases;
  t.kernel = int(std::min<int64_t>(int64_t{t.taps} * stride, 1 << 12));
  // A pitch that is no multiple of the banks, if there is room for it; fewer channels, if there is not.
  const int rows = walk_rows(t.taps);
  const int64_t sums = t.spread > 1 ? int64_t{kWalkThreads} * rows * vector : 0;
  const auto bytes_of = [&](int pitch) {
    return (int64_t{t.kernel} * t.kernel * pitch + sums) * 4;
  };
  int64_t most = kMostChannels;
  const auto fits = [&] {
    t.channels = channel_slice(problem.in_channels, most, vector);
    t.lanes = t.channels / vector;
    t.pitch = int(round_up(t.channels, 4));
    if (bytes_of(t.pitch + 4) <= kSharedLimit) t.pitch += 4;
    return bytes_of(t.pitch) <= kSharedLimit && t.lanes * t.spread <= kWalkThreads;
  };
  while (!fits() && most > vector) most /= 2;
  const int64_t slices = blocks_of(problem.in_channels, t.channels);

  const int64_t row_runs = blocks_of(problem.h.in, rows);
  t.items = int(std::clamp<int64_t>(kWalkThreads / (t.lanes * t.spread), 1, row_runs));
  const int64_t row_groups = blocks_of(row_runs, t.items);
  // Long runs of columns, which begin and end with pixels that others fetch too, but enough blocks.
  const int64_t base = problem.batch * slices * row_groups;
  t.columns = int(problem.w.in);
  while (t.columns > 4 && base * blocks_of(problem.w.in, t.columns) < kInputBlocks * 3 / 4) {
    t.columns = (t.columns + 1) / 2;
  }
  const int64_t column_runs = blocks_of(problem.w.in, t.columns);
  t.threads = int(round_up(int64_t{t.lanes} * t.spread * t.items, 32));
  t.shared_bytes = int(std::min<int64_t>(bytes_of(t.pitch), INT32_MAX));
  t.blocks = base * column_runs;
  t.by_lanes = FastDivide(t.lanes);
  t.by_spread = FastDivide(t.spread);
  t.by_column_runs = FastDivide(column_runs);
  t.by_row_groups = FastDivide(row_groups);
  t.by_slices = FastDivide(slices);
  t.by_kernel = FastDivide(t.kernel);
  t.by_places = FastDivide(t.items * t.lanes);
  return t;
}

WalkSquareTile walk_square_tile(const Problem& problem) {
  const int bytes = int(element_size(problem.dtype)), vector = walk_vector(bytes);
  const int half = int(problem.h.stride) / 2;
  WalkSquareTile t{};
  t.taps = std::min(taps_of(problem), 2);
  t.classes = half * half;
  // Few channels a block leave threads for several runs of positions, whose sums meet before they go to memory.
  int64_t most = kMostChannels;
  const auto slice = [&] {
    t.channels = channel_slice(problem.out_channels, most, vector);
    t.lanes = t.channels / vector;
    return t.lanes * t.classes;
  };
  while (slice() > kSquareWalkThreads / 4 && t.channels * bytes >= 128) most /= 2;
  while (slice() > kSquareWalkThreads && t.channels * bytes >= 64) most /= 2;
  const int64_t slices = blocks_of(problem.out_channels, t.channels);
  t.slots = std::max(1, kSquareWalkThreads / (t.lanes * t.classes));
  t.threads = int(round_up(int64_t{t.lanes} * t.classes * t.slots, 32));
  const auto extent = [](const Axis& a) { return int((a.out - 1 + a.near_pad) / a.stride + 1); };
  t.rows = extent(problem.h), t.columns = extent(problem.w);
  const int64_t positions = problem.batch * t.rows * t.columns;
  t.positions = int(std::min<int64_t>(positions, INT32_MAX));
  t.part_floats = weight_bytes(problem) / 4;
  int64_t split = std::max<int64_t>(1, kSquareBlocks / slices);
  if (problem.direction == Direction::grad_weight) {
    const int64_t piece_bytes = 4 * (t.part_floats + problem.out_channels);
    split = std::min(split, std::max<int64_t>(1, kWorkspaceLimit / piece_bytes));
  }
  split = std::min(split, blocks_of(positions, 16 * int64_t{t.slots}));
  t.run = int(blocks_of(t.positions, split * t.slots));
  t.split = int(blocks_of(t.positions, int64_t{t.run} * t.slots));
  t.blocks = slices * t.split;
  t.shared_bytes = 4 * (t.taps * t.taps + 1) * vector * (t.threads + 1);
  t.by_lanes = FastDivide(t.lanes);
  t.by_classes = FastDivide(t.classes);
  t.by_half_stride = FastDivide(half);
  t.by_slices = FastDivide(slices);
  t.by_rows = FastDivide(t.rows);
  t.by_columns = FastDivide(t.columns);
  return t;
}

}  // namespace convt2d::cuda::depthwise
