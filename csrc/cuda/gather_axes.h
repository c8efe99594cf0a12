// The taps of a gather (core/phases.h) along one axis, sorted by source offset, for kernels that bring a
// source patch into shared memory once and let all taps and several phases share it.
#pragma once

#include <cstdint>
#include <string>

#include "core/problem.h"

namespace convt2d::cuda {

constexpr int kMaxSlots = 4;       // phases of an axis in one group
constexpr int kMaxAxisSteps = 80;  // offsets x groups of one axis
constexpr int kMaxAxisGroups = 32;

// One source offset of one axis and, for each phase slot of the group, the rank of the tap that lands
// there (-1: none).
struct AxisStep {
  int16_t offset;
  int8_t rank[kMaxSlots];
};

// Steps [first, first + count) of the axis belong to this group of phases.
struct AxisGroup {
  int16_t first, count;
  int16_t offset_low, offset_span;  // smallest offset; largest - smallest
  int16_t first_phase, phases;
  int16_t first_tap[kMaxSlots], taps[kMaxSlots];
};

// What every block reads comes first: parameters come in lines of 64 bytes.
struct AxisTable {
  int16_t groups, slots;  // groups of phases; phases in a full group
  int32_t tap_step, source_step, destination_step;
  int32_t source_extent, destination_extent;
  AxisGroup group[kMaxAxisGroups];
  AxisStep step[kMaxAxisSteps];
};

// Cuts the phases of an axis into groups of `slots` and merges the taps of a group by source offset.
// Returns why it cannot be done, or an empty string.
std::string build_axis(const Problem& problem, const Axis& axis, int slots, AxisTable& table);

// Phases of an axis that have an output; 1 in grad_input.
int64_t phases_of(const Problem& problem, const Axis& axis);

// Largest distance between two source offsets of a group.
int span_of(const AxisTable& table);

// Positions of an axis: the longest phase.
int64_t position_extent(const AxisTable& table);

// Taps of all phases and source offsets of all groups of an axis.
struct AxisTotals {
  double taps = 0, steps = 0;
};
AxisTotals totals(const AxisTable& table);

// ceil(2^32 / divisor), 0 for 1: what divide() of gather_device.cuh multiplies by.
CONVT2D_HOST_DEVICE uint32_t magic_of(int32_t divisor) {
  return divisor == 1 ? 0u : 0xffffffffu / static_cast<uint32_t>(divisor) + 1;
}

}  // namespace convt2d::cuda
