#include "cuda/depthwise/depthwise_lanes.h"

#include "core/phases.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda::depthwise {
namespace {

constexpr int kWarp = 32;
constexpr int kLeastThreads = 128;
// Blocks of kLeastThreads that an H200 holds at once. How sums of grad_weight are cut follows from it.
constexpr int64_t kBlocksAtOnce = 528;

}  // namespace

int lane_kernel(const Problem& problem) {
  const int bytes = int(element_size(problem.dtype));
  if (problem.y_layout != Layout::nchw) return -1;
  if (problem.direction == Direction::grad_input && problem.group_out() != 1) return -1;
  const Axis &h = problem.h, &w = problem.w;
  if (h.dilation != 1 || w.dilation != 1 || h.stride != w.stride || h.near_pad < 0) return -1;
  if (problem.batch * (h.out + h.near_pad + 1) >= INT32_MAX / 2) return -1;
  for (int index = 0; index < int(kLaneKernels.size()); ++index) {
    const LaneKernel& kernel = kLaneKernels[index];
    if (kernel.stride != w.stride || kernel.taps * kernel.stride < std::max(h.kernel, w.kernel)) {
      continue;
    }
    const bool fits = w.near_pad == (kernel.taps - 1) * kernel.stride / 2 &&
                      w.out == w.in * w.stride && w.out % lane_columns(kernel.stride, bytes) == 0;
    if (fits) return index;
  }
  return -1;
}

LaneTile lane_tile(const Problem& problem, const LaneKernel& kernel) {
  const bool back = problem.direction == Direction::grad_weight;
  const int bytes = int(element_size(problem.dtype));
  const int columns = lane_columns(kernel.stride, bytes), own = columns / kernel.stride;
  const int spread = kernel.stride / lane_phases(kernel.stride);
  const int64_t pieces = problem.w.out / columns;
  const int edge = kernel.taps > 1;

  LaneTile t{};
  t.lead = pieces > kWarp ? edge : 0;
  t.tiles = int(blocks_of(pieces, pieces > kWarp ? kWarp - 2 * edge : kWarp));
  t.step = int(blocks_of(pieces, t.tiles));
  t.lanes = t.step + 2 * t.lead;
  t.segments = kWarp / t.lanes;
  t.slots = 1;
  const auto threads = [&] { return int(blocks_of(t.slots * spread, t.segments)) * kWarp; };
  while (threads() < kLeastThreads) ++t.slots;
  t.slots = threads() / kWarp * t.segments / spread;

  // Long walks, since the first steps of each fetch again what another one has fetched, but enough of them.
  const int64_t rows = problem.direction == Direction::grad_input
                           ? problem.h.in
                           : (problem.h.out - 1 + problem.h.near_pad) / kernel.stride + 1;
  const int64_t columns_of_units = problem.batch * problem.out_channels * t.tiles;
  int64_t strips = 1;
  while (strips * 2 * 8 * kernel.taps <= rows &&
         columns_of_units * strips * threads() / t.slots < kBlocksAtOnce * kLeastThreads * 3 / 4) {
    strips *= 2;
  }
  t.rows = int(blocks_of(rows, strips));
  t.strips = int(blocks_of(rows, t.rows));
  t.units = int(problem.batch * t.strips);
  const int64_t base = problem.out_channels * t.tiles;
  // One wave of blocks, if there is more than one; pieces of grad_weight take room.
  const int64_t units_at_once = blocks_of(t.units, t.slots);
  int64_t split =
      std::clamp<int64_t>(kBlocksAtOnce * kLeastThreads / (base * threads()), 1, units_at_once);
  if (back) {
    const int64_t most = kWorkspaceLimit / (weight_bytes(problem) + 4 * problem.out_channels);
    split = std::clamp<int64_t>(split, 1, std::max<int64_t>(1, most / t.tiles));
  } else {
    split = std::max(split, blocks_of(units_at_once, 16));  // walks need not be longer than that
  }
  t.rounds = int(blocks_of(units_at_once, split));
  t.split = int(blocks_of(units_at_once, t.rounds));
  t.threads = threads();
  t.blocks = base * t.split;
  t.part_floats = weight_bytes(problem) / 4;
  const int sums = kernel.taps * kernel.taps * kernel.stride * lane_phases(kernel.stride);
  if (back) {
    t.shared_bytes = 4 * (sums + 1) * (t.threads + 1);
  } else if (problem.direction == Direction::grad_input && spread > 1) {
    t.shared_bytes = 2 * 4 * lane_depth(kernel.stride, bytes) * spread * t.slots * t.lanes * own;
  }
  t.by_lanes = FastDivide(t.lanes);
  t.by_tiles = FastDivide(t.tiles);
  t.by_channels = FastDivide(problem.out_channels);
  t.by_strips = FastDivide(t.strips);
  t.by_steps = FastDivide(t.rows + kernel.taps - 1);
  t.by_places = FastDivide(t.slots * t.lanes);
  return t;
}

}  // namespace convt2d::cuda::depthwise
