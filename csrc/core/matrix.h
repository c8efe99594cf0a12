// The limit in which a layer is a product of matrices: images of one pixel, outputs of one kernel, as the first layer of
// many generators. Then every tap is an output channel of a 1 x 1 kernel on a 1 x 1 image, for which families have better
// tiles than for so many phases of one pixel each.
#pragma once

#include "core/args.h"
#include "core/problem.h"

namespace convt2d {

inline bool is_matrix(const Problem& p) {
  const auto one_kernel = [](const Axis& axis) {
    return axis.in == 1 && axis.near_pad == 0 && axis.dilation == 1 && axis.out == axis.kernel;
  };
  const bool dense =
      p.x_layout != Layout::strided && p.y_layout != Layout::strided && p.w_layout == p.y_layout;
  // A bias is of the channels that there were.
  return p.groups == 1 && !p.has_bias && dense && one_kernel(p.h) && one_kernel(p.w) &&
         p.h.kernel * p.w.kernel > 1;
}

// The same problem with taps as channels. Images of one pixel lie in both orders; this is the one in which channels of a
// kernel are neighbours.
inline Problem as_matrix(Problem p) {
  p.out_channels *= p.h.kernel * p.w.kernel;
  p.h = p.w = {1, 1, 1, 1, 0, 1};
  p.x_layout = p.w_layout = p.y_layout = Layout::nhwc;
  return p;
}

// And its tensors.
inline Args as_matrix(const Problem& matrix, Args args) {
  const auto rows_of = [](TensorRef tensor, int64_t channels) {
    return TensorRef{tensor.data, {channels, 1, channels, channels}};
  };
  args.x = rows_of(args.x, matrix.in_channels);
  args.w = rows_of(args.w, matrix.out_channels);
  args.y = rows_of(args.y, matrix.out_channels);
  return args;
}

}  // namespace convt2d
