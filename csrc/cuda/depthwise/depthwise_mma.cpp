#include "cuda/depthwise/depthwise_mma.h"

#include <algorithm>

namespace convt2d::cuda::depthwise {
namespace {

constexpr int64_t kWarpsAtOnce = 2112;  // 16 of each multiprocessor of an H200
constexpr int64_t kMostRounds = 16;     // walks need not be longer than that
constexpr int64_t kLeastRows = 16;      // of x, of a strip

}  // namespace

int mma_kernel(const Problem& problem) {
  if (problem.direction != Direction::grad_input) return -1;
  const int index = lane_kernel(problem);
  return index >= 0 && on_mma(kLaneKernels[index], int(element_size(problem.dtype))) ? index : -1;
}

LaneTile mma_tile(const Problem& problem) {
  const int64_t pieces = problem.w.out / kMmaColumns, rows = problem.h.in;
  LaneTile t{};
  t.lead = pieces > kMmaPieces;
  t.tiles = int(blocks_of(pieces, kMmaPieces - 2 * t.lead));
  t.step = int(blocks_of(pieces, t.tiles));
  t.lanes = int(round_up(t.step + 2 * t.lead, 2));
  t.segments = t.slots = kMmaPieces / t.lanes;
  t.threads = kMmaThreads;
  // Long walks, since a strip begins with rows that another one has fetched, but enough of them.
  const int64_t columns_of_units = problem.batch * problem.out_channels * t.tiles;
  int64_t strips = 1;
  while (strips * kLeastRows * 2 <= rows &&
         columns_of_units * strips < kWarpsAtOnce * t.slots * 3 / 4)
    strips *= 2;
  t.rows = int(blocks_of(rows, strips));
  t.strips = int(blocks_of(rows, t.rows));
  t.units = int(problem.batch * t.strips);
  const int64_t base = problem.out_channels * t.tiles, at_once = blocks_of(t.units, t.slots);
  const int64_t split = std::max(std::clamp<int64_t>(kWarpsAtOnce / base, 1, at_once),
                                 blocks_of(at_once, kMostRounds));
  t.rounds = int(blocks_of(at_once, split));
  t.split = int(blocks_of(at_once, t.rounds));
  t.blocks = blocks_of(base * t.split, kMmaWarps);
  t.by_lanes = FastDivide(t.lanes);
  t.by_tiles = FastDivide(t.tiles);
  t.by_channels = FastDivide(problem.out_channels);
  t.by_strips = FastDivide(t.strips);
  return t;
}

}  // namespace convt2d::cuda::depthwise
