#include "cuda/igemm/igemm_shape.h"

#include <algorithm>

#include "core/phases.h"

namespace convt2d::cuda::igemm {
namespace {

constexpr int64_t kShortRange = 32000;  // offsets and taps are stored in 16 bits

AxisWalk walk_of(const Problem& problem, const Axis& axis, int64_t phase) {
  return problem.direction == Direction::fwd ? forward_walk(axis, phase) : grad_input_walk(axis);
}

// Cuts the phases of an axis into groups of `slots` and merges the taps of a group by source offset.
std::string build_axis(const Problem& problem, const Axis& axis, int slots, AxisTable& table) {
  const int64_t phases = problem.direction == Direction::fwd ? axis.stride : 1;
  const int64_t groups = ceil_div(phases, slots);
  if (groups > kMaxAxisGroups)
    return "stride " + std::to_string(axis.stride) + " has too many phases";
  if (axis.kernel > 127) return "kernel extent " + std::to_string(axis.kernel) + " > 127";
  const AxisWalk any = walk_of(problem, axis, 0);
  table = {};
  table.groups = static_cast<int16_t>(groups);
  table.slots = static_cast<int16_t>(slots);
  table.tap_step = static_cast<int32_t>(any.tap_step);
  table.source_step = static_cast<int32_t>(any.source_step);
  table.destination_step = static_cast<int32_t>(any.destination_step);
  table.source_extent = static_cast<int32_t>(any.source_extent);
  table.destination_extent =
      static_cast<int32_t>(problem.direction == Direction::fwd ? axis.out : axis.in);
  int used = 0;
  for (int64_t g = 0; g < groups; ++g) {
    AxisGroup& group = table.group[g];
    group.first = static_cast<int16_t>(used);
    group.first_phase = static_cast<int16_t>(g * slots);
    group.phases = static_cast<int16_t>(std::min<int64_t>(slots, phases - g * slots));
    int64_t low = kShortRange, high = -kShortRange;
    for (int slot = 0; slot < group.phases; ++slot) {
      const AxisWalk walk = walk_of(problem, axis, group.first_phase + slot);
      group.first_tap[slot] = static_cast<int16_t>(walk.first_tap);
      group.taps[slot] = static_cast<int16_t>(walk.taps);
      for (int64_t rank = 0; rank < walk.taps; ++rank) {
        const int64_t offset = walk.first_offset + rank * walk.offset_step;
        if (offset < -kShortRange || offset > kShortRange)
          return "tap offset " + std::to_string(offset) + " too far";
        low = std::min(low, offset);
        high = std::max(high, offset);
        int found = group.first;
        while (found < used && table.step[found].offset != offset) ++found;
        if (found == used) {
          if (used == kMaxAxisSteps) return "more than 80 tap offsets on one axis";
          AxisStep& step = table.step[used++];
          step.offset = static_cast<int16_t>(offset);
          std::fill(step.rank, step.rank + kMaxSlots, static_cast<int8_t>(-1));
        }
        table.step[found].rank[slot] = static_cast<int8_t>(rank);
      }
    }
    group.count = static_cast<int16_t>(used - group.first);
    group.offset_low = static_cast<int16_t>(group.count ? low : 0);
    group.offset_span = static_cast<int16_t>(group.count ? high - low : 0);
  }
  return {};
}

int span_of(const AxisTable& table) {
  int span = 0;
  for (int g = 0; g < table.groups; ++g) span = std::max<int>(span, table.group[g].offset_span);
  return span;
}

// Positions of an axis: the longest phase.
int64_t position_extent(const AxisTable& table) {
  return ceil_div(table.destination_extent, table.destination_step);
}

uint32_t magic(int64_t divisor) {  // see divide() in the kernel
  return divisor == 1 ? 0u : static_cast<uint32_t>(0xffffffffu / divisor + 1);
}

}  // namespace

std::string gather_shape(const Problem& problem, const GatherChoice& choice, GatherParams& params) {
  const TileRow tile = kTiles[choice.row];
  const bool forward = problem.direction == Direction::fwd;
  params = {};
  params.batch = static_cast<int32_t>(problem.batch);
  params.groups = static_cast<int32_t>(problem.groups);
  params.reduce = static_cast<int32_t>(forward ? problem.group_in() : problem.group_out());
  params.columns = static_cast<int32_t>(forward ? problem.group_out() : problem.group_in());

  // Column phases first: they make NCHW rows contiguous. Row phases take what is left.
  const int phases_w = static_cast<int>(forward ? problem.w.stride : 1);
  const int phases_h = static_cast<int>(forward ? problem.h.stride : 1);
  const int slots_w = std::min(tile.slots, phases_w);
  const int slots_h = std::min(tile.slots / slots_w, phases_h);
  if (std::string reason = build_axis(problem, problem.h, slots_h, params.h); !reason.empty())
    return reason;
  if (std::string reason = build_axis(problem, problem.w, slots_w, params.w); !reason.empty())
    return reason;

  params.warps = choice.warps;
  params.tile_n = choice.tile_n;
  params.tile_h = choice.tile_h;
  params.tile_w = choice.tile_w;
  params.tiles_n = static_cast<int32_t>(ceil_div(problem.batch, choice.tile_n));
  params.tiles_h = static_cast<int32_t>(ceil_div(position_extent(params.h), choice.tile_h));
  params.tiles_w = static_cast<int32_t>(ceil_div(position_extent(params.w), choice.tile_w));
  params.column_tiles = static_cast<int32_t>(ceil_div(params.columns, tile.columns));

  const bool half = element_size(problem.dtype) == 2;
  const Layout source = forward ? problem.x_layout : problem.y_layout;
  const int row = half ? 16 : 8;
  const int vector = half ? 8 : 4;
  const Layout destination = forward ? problem.y_layout : problem.x_layout;
  params.vector_stores = destination != Layout::nhwc ? 0 : params.columns % vector != 0 ? 1 : 2;
  const int patch_h = (choice.tile_h - 1) * params.h.source_step + span_of(params.h) + 1;
  int patch_w = (choice.tile_w - 1) * params.w.source_step + span_of(params.w) + 1;
  // Loads of several pixels start on multiples of `run` columns: the patch grows to whole runs.
  const int run = half ? 2 : 4;
  const bool runs = source == Layout::nchw && params.w.source_extent % run == 0 &&
                    (choice.tile_w * params.w.source_step % run == 0 || params.tiles_w == 1);
  if (source == Layout::nhwc && params.reduce % vector == 0) {
    params.source_mode = kVectors;
  } else if (runs) {
    params.source_mode = half ? kPixelPairs : kWidePlanes;
    patch_w = (patch_w + 2 * (run - 1)) / run * run;
  } else {
    params.source_mode = half ? kGather : kPlanes;
  }
  params.patch_h = patch_h;
  params.patch_w = patch_w;
  params.patch_h_magic = magic(patch_h);
  params.patch_w_magic = magic(patch_w);
  params.tile_h_magic = magic(choice.tile_h);
  params.tile_w_magic = magic(choice.tile_w);
  params.slice_shift = choice.slice_shift;
  params.chunks = static_cast<int32_t>(
      ceil_div(params.reduce, static_cast<int64_t>(row) << choice.slice_shift));
  params.stages = choice.stages;
  params.resident = choice.resident;

  for (int h = 0; h < params.h.groups; ++h)
    for (int w = 0; w < params.w.groups; ++w) {
      const AxisGroup &gh = params.h.group[h], &gw = params.w.group[w];
      int entries = 0;
      for (int i = 0; i < gh.phases; ++i)
        for (int j = 0; j < gw.phases; ++j) entries += gh.taps[i] * gw.taps[j];
      params.max_entries = std::max(params.max_entries, entries);
      params.max_steps = std::max(params.max_steps, gh.count * gw.count);
    }
  const int64_t pixels = static_cast<int64_t>(params.tile_n) * patch_h * patch_w;
  const int64_t units = std::max<int64_t>(pixels, params.max_entries * tile.columns)
                        << (choice.slice_shift + 1);
  if (units > 60000) return "a chunk has too many pieces (" + std::to_string(units) + ")";
  return {};
}

}  // namespace convt2d::cuda::igemm
