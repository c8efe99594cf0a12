// What the depthwise kernels work on, as plain numbers that host and device share.
//
// Along one axis let g = gcd(stride, dilation), step = stride / g, reach = dilation / g and
// period = stride * reach. Outputs that agree modulo `period` form a class. Number the outputs of a
// class by i and the inputs of one residue modulo `reach` by position: output i then reads positions
// i + base, i + base - 1, ... through taps first, first + step, ...  So a class is a plain
// correlation of at most ceil(kernel / step) taps, and k4 s2, k16 s8 and k64 s32 are the same
// two-tap loop. Among the classes of one residue `base` takes only two values, one apart: the
// `shift` of the kernels, which lets every class read aligned runs from shared memory.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/problem.h"
#include "cuda/device/index.cuh"

namespace convt2d::cuda::depthwise {

constexpr int kThreads = 256;
constexpr int kSharedLimit = 48 * 1024;   // needs no opt-in on any GPU
constexpr int kSharedTarget = 24 * 1024;  // leaves room for several blocks a multiprocessor
constexpr int kStrideLimit = 32;          // the phases of both axes travel as kernel arguments
constexpr int kMultiplierLimit = 16;
constexpr int64_t kReachLimit = int64_t{1} << 24;  // of pads and dilated kernels

// Outputs o = phase + stride * q of one axis: tap first + j * step reads input q + offset - j * reach.
struct Phase {
  int first, taps, offset;
};

// Blocks that keep a large GPU busy. Constants, not device properties: grad_weight's order of
// summation must depend on the shape alone.
constexpr int64_t kEnoughBlocks = 528;
constexpr int64_t kSplitBlocks = 1056;

struct ClassAxis {
  int in, out, kernel, stride, near_pad, dilation;
  int divisor, step, reach, period;
  int lowest;  // below every class's position offset, see class_axis()
  int taps;    // most taps of a class
  int ragged;  // 1 if some classes have fewer
  FastDivide by_stride, by_period;
  Phase phases[kStrideLimit];
};

// The whole problem as every kernel sees it. Strides are in elements.
struct Geometry {
  const void* x;     // [N, C_in, H_in, W_in]
  const void* w;     // [C_in, multiplier, kh, kw]
  const void* y;     // [N, C_out, H_out, W_out]
  const void* bias;  // [C_out] or null
  void* result;      // y, x, or the partial sums of w
  ClassAxis h, v;    // v runs along a row
  int64_t x_stride[4], w_stride[4], y_stride[4];
  int64_t batch;
  int in_channels, out_channels, multiplier;
  FastDivide by_multiplier, by_in_channels, by_out_channels;
};

ClassAxis class_axis(const Axis& axis);

inline int64_t blocks_of(int64_t count, int64_t size) { return (count + size - 1) / size; }

inline int64_t round_up(int64_t value, int64_t to) { return blocks_of(value, to) * to; }

}  // namespace convt2d::cuda::depthwise
