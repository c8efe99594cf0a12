// The tap table: which tap feeds which output phase at which input offset.
//
// Outputs of one axis fall into `stride` phases: o = phase + stride * q. Tap r feeds phase a iff
// (a + near_pad - r * dilation) is divisible by the stride, and then reads input q + offset with
// offset = (a + near_pad - r * dilation) / stride. With g = gcd(stride, dilation) the taps of a
// phase are r0, r0 + stride/g, r0 + 2 stride/g, ... and their offsets fall by dilation/g each time.
// So the whole table of a phase is an arithmetic progression, and needs no storage.
//
// grad_input is the same walk seen from the other side: input i reads output i * stride + offset
// with offset = r * dilation - near_pad for every tap r. `AxisWalk` covers both; so can one kernel.
#pragma once

#include "core/problem.h"
#include "core/types.h"

namespace convt2d {

CONVT2D_HOST_DEVICE int64_t floor_div(int64_t a, int64_t b) {  // b > 0
  int64_t q = a / b;
  return q * b > a ? q - 1 : q;
}

CONVT2D_HOST_DEVICE int64_t ceil_div(int64_t a, int64_t b) { return -floor_div(-a, b); }

CONVT2D_HOST_DEVICE int64_t round_up(int64_t value, int64_t to) { return ceil_div(value, to) * to; }

CONVT2D_HOST_DEVICE int64_t gcd(int64_t a, int64_t b) {
  while (b != 0) {
    int64_t r = a % b;
    a = b;
    b = r;
  }
  return a;
}

// With a single input position the stride of an axis has no effect on the result. A stride that
// reaches past every tap makes each output its own phase with at most one tap, at offset 0: no
// padding is multiplied, and stacking the phases gives one dense GEMM.
inline Axis canonical(Axis axis) {
  if (axis.in == 1) {
    const int64_t above = axis.out + axis.near_pad;
    const int64_t below = (axis.kernel - 1) * axis.dilation - axis.near_pad + 1;
    axis.stride = above > below ? above : below;
    if (axis.stride < 1) axis.stride = 1;
  }
  return axis;
}

// How destination index q of one phase gathers from the source along one axis:
//   for j in [0, taps):  source = q * source_step + first_offset + j * offset_step
//                        tap    = first_tap + j * tap_step
//   destination = phase + q * destination_step,  q in [0, extent)
struct AxisWalk {
  int64_t taps, first_tap, tap_step;
  int64_t source_step, first_offset, offset_step, source_extent;
  int64_t phase, destination_step, extent;
};

// Forward: destination y, source x, one walk for each phase in [0, stride).
CONVT2D_HOST_DEVICE AxisWalk forward_walk(const Axis& axis, int64_t phase) {
  const int64_t g = gcd(axis.stride, axis.dilation);
  AxisWalk walk{};
  walk.tap_step = axis.stride / g;
  walk.source_step = 1;
  walk.offset_step = -(axis.dilation / g);
  walk.source_extent = axis.in;
  walk.phase = phase;
  walk.destination_step = axis.stride;
  walk.extent = phase < axis.out ? (axis.out - phase - 1) / axis.stride + 1 : 0;
  const int64_t last = walk.tap_step < axis.kernel ? walk.tap_step : axis.kernel;
  for (int64_t tap = 0; tap < last; ++tap) {
    const int64_t reach = phase + axis.near_pad - tap * axis.dilation;
    const int64_t offset = floor_div(reach, axis.stride);
    if (offset * axis.stride == reach) {
      walk.first_tap = tap;
      walk.first_offset = offset;
      walk.taps = (axis.kernel - tap - 1) / walk.tap_step + 1;
      break;
    }
  }
  return walk;
}

// grad_input: destination x, source y, a single phase.
CONVT2D_HOST_DEVICE AxisWalk grad_input_walk(const Axis& axis) {
  AxisWalk walk{};
  walk.taps = axis.kernel;
  walk.tap_step = 1;
  walk.source_step = axis.stride;
  walk.first_offset = -axis.near_pad;
  walk.offset_step = axis.dilation;
  walk.source_extent = axis.out;
  walk.destination_step = 1;
  walk.extent = axis.in;
  return walk;
}

}  // namespace convt2d
