// Problem: one transposed convolution, in one direction, as plain numbers.
//
//   y[n, co, o] = bias[co] + sum over ci, tap of x[n, ci, i] * w[ci, co, tap]
//   for every (i, tap) with  o = i * stride - near_pad + tap * dilation   (both axes)
//
// The same struct serves all three directions and both backends. (near_pad, out_h, out_w) stand in
// for padding + output_padding, which also covers output_size and asymmetric padding.
#pragma once

#include <string>

#include "core/types.h"

namespace convt2d {

// One spatial axis of a Problem.
struct Axis {
  int64_t in, out, kernel, stride, near_pad, dilation;
};

// Trivially copyable and without implicit padding bytes: the plan cache compares it with memcmp.
struct Problem {
  int64_t batch, in_channels, out_channels, groups;
  Axis h, w;
  Direction direction;
  DType dtype;
  Precision precision;                  // matters for f32 only
  Layout x_layout, w_layout, y_layout;  // w: nchw means [ci][co][kh][kw] contiguous
  int32_t has_bias;                     // fwd: bias is added; grad_weight: its gradient is wanted
  int32_t wide_index;                   // 1 if an element offset of any tensor needs 64 bits

  int64_t group_in() const { return in_channels / groups; }
  int64_t group_out() const { return out_channels / groups; }
};

// Full extent of the output along one axis for torch's (padding, output_padding).
int64_t output_extent(int64_t in, int64_t kernel, int64_t stride, int64_t padding,
                      int64_t output_padding, int64_t dilation);

// Valid multiplications along one axis: pairs (input position, tap) that land inside the output.
int64_t valid_taps(const Axis& axis);

// Multiply-adds of the whole problem that touch real data (the floor's arithmetic term).
double valid_macs(const Problem& problem);

// Bytes of x, w and y, each counted once (the floor's memory term).
double tensor_bytes(const Problem& problem);

// Empty if the numbers describe a legal problem, else what is wrong with them. The Python layer
// gives users torch's own messages first; this is the last line of defence in front of a kernel.
std::string invalid_reason(const Problem& problem);

// One line, for explain() and CONVT2D_LOG=plan.
std::string describe(const Problem& problem);

}  // namespace convt2d
