// Other problems with the same memory and the same sums, for which families may have better tiles. Nothing is moved: a form
// is a way to read the tensors as they lie.
#pragma once

#include "core/args.h"
#include "core/problem.h"

namespace convt2d {

enum class Form {
  given,
  matrix,  // Images of one pixel, outputs of one kernel, as the first layer of many generators: every tap is an output
           // channel of a 1 x 1 kernel.
  line,    // Images one pixel wide: lines that stand upright, laid down. Tiles are long along rows.
  row,  // 1 x 1 kernels in planes: an image is one row, whose length is more often a whole number of vectors.
};

inline const char* name_of(Form form) {
  switch (form) {
    case Form::matrix:
      return "a product of matrices";
    case Form::line:
      return "an upright line, laid down";
    case Form::row:
      return "images as rows";
    default:
      return "";
  }
}

constexpr Axis kOnePixel = {1, 1, 1, 1, 0, 1};

inline bool is_matrix(const Problem& p) {
  const auto one_kernel = [](const Axis& axis) {
    return axis.in == 1 && axis.near_pad == 0 && axis.dilation == 1 && axis.out == axis.kernel;
  };
  const bool dense =
      p.x_layout != Layout::strided && p.y_layout != Layout::strided && p.w_layout == p.y_layout;
  // A bias is of the channels that there were; its gradient can be had by itself.
  return p.groups == 1 && !(p.has_bias && p.direction == Direction::fwd) && dense &&
         one_kernel(p.h) && one_kernel(p.w) && p.h.kernel * p.w.kernel > 1;
}

// The form beside the given one, if there is one.
inline Form other_form(const Problem& p) {
  if (is_matrix(p)) return Form::matrix;
  for (Layout layout : {p.x_layout, p.w_layout, p.y_layout})
    if (layout == Layout::strided) return Form::given;
  const auto pointwise = [](const Axis& axis) {
    return axis.kernel == 1 && axis.stride == 1 && axis.near_pad == 0 && axis.in == axis.out;
  };
  const auto one_pixel = [](const Axis& axis) {
    return axis.in == 1 && axis.out == 1 && axis.kernel == 1 && axis.near_pad == 0;
  };
  if (one_pixel(p.w) && !one_pixel(p.h)) return Form::line;
  const bool planes = p.x_layout == Layout::nchw && p.y_layout == Layout::nchw;
  if (planes && pointwise(p.h) && pointwise(p.w) && p.h.in > 1) return Form::row;
  return Form::given;
}

inline Problem in_form(Form form, Problem p) {
  switch (form) {
    case Form::matrix:
      p.out_channels *= p.h.kernel * p.w.kernel;
      p.h = p.w = kOnePixel;
      p.has_bias = 0;
      // Images of one pixel lie in both orders; this is the one in which channels of a kernel are neighbours.
      p.x_layout = p.w_layout = p.y_layout = Layout::nhwc;
      break;
    case Form::line:
      p.w = p.h;
      p.h = kOnePixel;
      break;
    case Form::row: {
      const int64_t pixels = p.h.in * p.w.in;
      p.w = {pixels, pixels, 1, 1, 0, 1};
      p.h = kOnePixel;
      break;
    }
    default:
      break;
  }
  return p;
}

// Whether a form leaves the bias gradient to whoever asked for it.
inline bool leaves_bias(const Problem& p, Form form) { return form == Form::matrix && p.has_bias; }

// Whichever promises more: `predicted` is the time of the best plan for a problem, `bias_us` that of its bias gradient by
// itself.
template <class Predicted, class BiasUs>
Form better_form(const Problem& p, const Predicted& predicted, const BiasUs& bias_us) {
  const Form other = other_form(p);
  if (other == Form::given) return other;
  const double apart = leaves_bias(p, other) ? bias_us(p) : 0;
  return predicted(in_form(other, p)) + apart <= predicted(p) ? other : Form::given;
}

// The tensors of a problem that is in a form other than the given one; they are dense.
inline Args in_form(const Problem& p, Args args) {
  const auto dense = [](TensorRef& tensor, Layout layout, int64_t channels, int64_t h, int64_t w) {
    const bool last = layout == Layout::nhwc;
    const int64_t pixel = last ? channels : 1;
    const int64_t strides[4] = {channels * h * w, last ? 1 : h * w, w * pixel, pixel};
    for (int i = 0; i < 4; ++i) tensor.stride[i] = strides[i];
  };
  dense(args.x, p.x_layout, p.in_channels, p.h.in, p.w.in);
  dense(args.w, p.w_layout, p.group_out(), p.h.kernel, p.w.kernel);
  dense(args.y, p.y_layout, p.out_channels, p.h.out, p.w.out);
  return args;
}

}  // namespace convt2d
