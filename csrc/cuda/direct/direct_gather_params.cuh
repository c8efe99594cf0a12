// direct, forward and grad_input: what a gather kernel is told, and how a block finds its steps.
//
// Shared by the four kernels: tiles (direct_gather.cuh), strips (direct_strip.cuh), dots
// (direct_dot.cuh), groups (direct_group.cuh). Positions along an axis fit in 32 bits, offsets into a tensor do not.
#pragma once

#include "cuda/device/numeric.cuh"
#include "cuda/direct/direct_config.h"

namespace convt2d::cuda::direct {

// One phase of one axis, see AxisWalk. `extent` is at least 1 inside `divide`.
struct PhaseWalk {
  int32_t taps, first_tap, first_offset, extent;
  FastDivide divide_extent;
};

constexpr int kTablePhases = 8;

struct GatherAxis {
  PhaseWalk walk[kTablePhases];  // the first phases; more are worked out where they are needed
  Axis axis;
  int64_t source_stride, weight_stride, destination_stride;  // of the tensors, in elements
  int64_t source_delta, weight_delta;  // elements from one step along the axis to the next
  int32_t tap_step, offset_step, source_step, source_extent;  // steps: stacked, 0 and 1
  int32_t destination_step, destination_extent;
  int32_t grid_phases;     // phases that are blocks of their own, else 1
  int32_t stacked_phases;  // phases beside each other in the columns, else 1
  int32_t looped_phases;   // phases that a block goes through in turn (w only), else 1
  int32_t stacked_offset, stacked_offsets;  // first source offset, and how many there are
  int32_t stride, near_pad, kernel;
  FastDivide divide_dilation, divide_grid_phases;
};

struct GatherParams {
  const void* source;
  const void* weight;
  const void* bias;  // or null
  void* destination;
  GatherAxis h, w;
  int64_t batch, blocks;
  int64_t source_n, source_c, destination_n, destination_c;
  int64_t weight_depth, weight_column, weight_group;
  int32_t depth, columns;  // channels a group of source and destination
  int32_t tile_channels;   // destination channels of a full tile
  int32_t lines;           // rows of a full tile that are stored: (channel, stacked phase_h)
  FastDivide divide_group_tiles, divide_column_tiles;       // tiles of one group, of all groups
  FastDivide divide_stack, divide_stack_w, divide_stack_h;  // stacked phases: both axes, each
  FastDivide divide_line_phases;  // phases of w in a block, stacked or looped
  bool depth_lanes;   // neighbouring threads read weights along depth (else along the columns)
  bool column_lanes;  // neighbouring threads store along the columns (else along the pixels)
};

struct Target {  // of a pixel: position in the destination, without the stacked phase
  int64_t offset;
  int32_t y, x;
};

template <typename A>
struct alignas(16) DestinationLine {  // all pixels of one channel and stacked phase_h
  int64_t target;
  A bias;
  int32_t phase_h;  // -1: no such line
};

__device__ __forceinline__ PhaseWalk phase_walk(const GatherAxis& axis, int phase) {
  if (phase < kTablePhases) return axis.walk[phase];
  const AxisWalk walk = forward_walk(axis.axis, phase);
  return {int32_t(walk.taps), int32_t(walk.first_tap), int32_t(walk.first_offset),
          int32_t(walk.extent), FastDivide(walk.extent > 0 ? walk.extent : 1)};
}

// How many steps a block makes along one axis, and where they start.
struct AxisSteps {
  int32_t count, offset, tap;
};

__device__ __forceinline__ AxisSteps axis_steps(const GatherAxis& axis, const PhaseWalk& walk) {
  if (axis.stacked_phases > 1) return {axis.stacked_offsets, axis.stacked_offset, 0};
  return {walk.taps, walk.first_offset, walk.first_tap};
}

// The tap of a stacked phase at a source offset, or -1.
__device__ __forceinline__ int32_t stacked_tap(const GatherAxis& axis, int phase, int offset) {
  const int32_t reach = phase + axis.near_pad - offset * axis.stride;
  if (reach < 0) return -1;
  const int32_t tap = int32_t(axis.divide_dilation.quotient(uint32_t(reach)));
  return tap * int32_t(axis.divide_dilation.divisor) == reach && tap < axis.kernel ? tap : -1;
}

}  // namespace convt2d::cuda::direct
