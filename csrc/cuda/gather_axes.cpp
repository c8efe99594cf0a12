#include "cuda/gather_axes.h"

#include <algorithm>

#include "core/phases.h"
#include "cuda/remembered.h"

namespace convt2d::cuda {
namespace {

constexpr int64_t kShortRange = 32000;  // offsets and taps are stored in 16 bits

AxisWalk walk_of(const Problem& problem, const Axis& axis, int64_t phase) {
  return problem.direction == Direction::fwd ? forward_walk(axis, phase) : grad_input_walk(axis);
}

// The axis whose phases are walked: forward alone has phases.
Axis walked(const Problem& problem, const Axis& axis) {
  return problem.direction == Direction::fwd ? canonical(axis) : axis;
}

std::string sorted_axis(const Problem& problem, const Axis& given, int slots, AxisTable& table);

}  // namespace

int64_t phases_of(const Problem& problem, const Axis& axis) {
  return problem.direction == Direction::fwd ? std::min(canonical(axis).stride, axis.out) : 1;
}

// What lies behind the last group and the last step stays as it is: all who ask have cleared their parameters.
std::string build_axis(const Problem& problem, const Axis& axis, int slots, AxisTable& table) {
  struct Answer {
    AxisTable table;
    std::string reason;
  };
  thread_local Remembered<Answer, 8, 16> known;
  const Answer& answer = known.answer(
      {slots, problem.direction == Direction::fwd, axis.in, axis.out, axis.kernel, axis.stride,
       axis.near_pad, axis.dilation},
      [&](Answer& found) { found.reason = sorted_axis(problem, axis, slots, found.table); });
  if (!answer.reason.empty()) return answer.reason;
  const AxisTable& found = answer.table;
  const AxisGroup& last = found.group[found.groups - 1];
  table.groups = found.groups, table.slots = found.slots;
  table.tap_step = found.tap_step, table.source_step = found.source_step;
  table.destination_step = found.destination_step;
  table.source_extent = found.source_extent, table.destination_extent = found.destination_extent;
  std::copy_n(found.group, found.groups, table.group);
  std::copy_n(found.step, last.first + last.count, table.step);
  return {};
}

namespace {

std::string sorted_axis(const Problem& problem, const Axis& given, int slots, AxisTable& table) {
  const Axis axis = walked(problem, given);
  const int64_t phases = phases_of(problem, axis);
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

}  // namespace

int span_of(const AxisTable& table) {
  int span = 0;
  for (int g = 0; g < table.groups; ++g) span = std::max<int>(span, table.group[g].offset_span);
  return span;
}

int64_t position_extent(const AxisTable& table) {
  return ceil_div(table.destination_extent, table.destination_step);
}

AxisTotals totals(const AxisTable& table) {
  AxisTotals sum;
  for (int g = 0; g < table.groups; ++g) {
    sum.steps += table.group[g].count;
    for (int s = 0; s < table.group[g].phases; ++s) sum.taps += table.group[g].taps[s];
  }
  return sum;
}

}  // namespace convt2d::cuda
