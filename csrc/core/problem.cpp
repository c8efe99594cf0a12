#include "core/problem.h"

#include <algorithm>
#include <sstream>
#include <stdexcept>

#include "core/phases.h"

namespace convt2d {
namespace {

// Kernels walk an axis with 32-bit positions; every position they can form stays below this.
constexpr int64_t kAxisLimit = int64_t{1} << 31;

// Element counts stay below this, so that byte offsets of any dtype fit in int64.
constexpr double kElementLimit = 1e18;

double elements(int64_t batch, int64_t channels, int64_t rows, int64_t columns) {
  return double(batch) * double(channels) * double(rows) * double(columns);
}

double x_elements(const Problem& p) { return elements(p.batch, p.in_channels, p.h.in, p.w.in); }
double y_elements(const Problem& p) { return elements(p.batch, p.out_channels, p.h.out, p.w.out); }
double w_elements(const Problem& p) {
  return elements(p.in_channels, p.group_out(), p.h.kernel, p.w.kernel);
}

std::string axis_reason(const Axis& axis, const char* label) {
  struct Bound {
    const char* what;
    int64_t value, least;
  };
  const Bound bounds[] = {
      {"input size", axis.in, 1},      {"output size", axis.out, 1},
      {"kernel size", axis.kernel, 1}, {"stride", axis.stride, 1},
      {"dilation", axis.dilation, 1},  {"near pad", axis.near_pad, 1 - kAxisLimit}};
  std::ostringstream out;
  for (const Bound& bound : bounds) {
    if (bound.value < bound.least || bound.value >= kAxisLimit) {
      out << bound.what << " along " << label << " is " << bound.value << ", must be in ["
          << bound.least << ", 2^31)";
      return out.str();
    }
  }
  // Each factor is below 2^31, so neither the products nor their sum can overflow.
  const int64_t pad = axis.near_pad < 0 ? -axis.near_pad : axis.near_pad;
  const int64_t reach =
      (axis.in - 1) * axis.stride + (axis.kernel - 1) * axis.dilation + axis.out + pad;
  if (reach >= kAxisLimit) {
    out << "positions along " << label << " reach " << reach << " (input " << axis.in << ", stride "
        << axis.stride << ", kernel " << axis.kernel << ", dilation " << axis.dilation
        << ", near pad " << axis.near_pad << ", output " << axis.out << "), the limit is 2^31";
    return out.str();
  }
  return {};
}

}  // namespace

int64_t output_extent(int64_t in, int64_t kernel, int64_t stride, int64_t padding,
                      int64_t output_padding, int64_t dilation) {
  int64_t moved, reach, pads, extent;
  const bool overflow = __builtin_mul_overflow(in - 1, stride, &moved) ||
                        __builtin_mul_overflow(kernel - 1, dilation, &reach) ||
                        __builtin_mul_overflow(padding, int64_t{2}, &pads) ||
                        __builtin_add_overflow(moved, reach, &extent) ||
                        __builtin_sub_overflow(extent, pads, &extent) ||
                        __builtin_add_overflow(extent, output_padding, &extent) ||
                        __builtin_add_overflow(extent, int64_t{1}, &extent);
  if (overflow) {
    std::ostringstream out;
    out << "the output size does not fit in 64 bits: input " << in << ", kernel " << kernel
        << ", stride " << stride << ", padding " << padding << ", output_padding " << output_padding
        << ", dilation " << dilation;
    throw std::overflow_error(out.str());
  }
  return extent;
}

int64_t valid_taps(const Axis& axis) {
  int64_t count = 0;
  for (int64_t tap = 0; tap < axis.kernel; ++tap) {
    // 0 <= i * stride + shift < out, solved for i.
    const int64_t shift = tap * axis.dilation - axis.near_pad;
    const int64_t first = std::max<int64_t>(0, ceil_div(-shift, axis.stride));
    const int64_t end = std::min(axis.in, ceil_div(axis.out - shift, axis.stride));
    count += std::max<int64_t>(0, end - first);
  }
  return count;
}

double valid_macs(const Problem& p) {
  return double(p.batch) * double(p.in_channels) * double(p.group_out()) * double(valid_taps(p.h)) *
         double(valid_taps(p.w));
}

double tensor_bytes(const Problem& p) {
  return (x_elements(p) + w_elements(p) + y_elements(p)) * double(element_size(p.dtype));
}

std::string invalid_reason(const Problem& p) {
  std::ostringstream out;
  if (p.batch < 1 || p.in_channels < 1 || p.out_channels < 1) {
    out << "batch " << p.batch << ", in_channels " << p.in_channels << ", out_channels "
        << p.out_channels << ": each must be at least 1 (empty tensors never reach a kernel)";
    return out.str();
  }
  if (p.groups < 1 || p.in_channels % p.groups != 0 || p.out_channels % p.groups != 0) {
    out << "groups " << p.groups << " must divide in_channels " << p.in_channels
        << " and out_channels " << p.out_channels;
    return out.str();
  }
  for (const std::string& reason : {axis_reason(p.h, "h"), axis_reason(p.w, "w")}) {
    if (!reason.empty()) return reason;
  }
  const double most = std::max({x_elements(p), w_elements(p), y_elements(p)});
  if (most >= kElementLimit) {
    out << "a tensor would have " << most << " elements, the limit is " << kElementLimit;
    return out.str();
  }
  return {};
}

std::string describe(const Problem& p) {
  std::ostringstream out;
  const auto tensor = [&](const char* label, Layout layout, int64_t a, int64_t b, int64_t c,
                          int64_t d) {
    out << "  " << label << " [" << a << ", " << b << ", " << c << ", " << d << "] "
        << name(layout);
  };
  const auto pair = [&](const char* label, int64_t h, int64_t w) {
    out << "  " << label << " " << h;
    if (h != w) out << "x" << w;
  };
  out << name(p.direction) << " " << name(p.dtype);
  if (p.dtype == DType::f32) out << "/" << name(p.precision);
  tensor("x", p.x_layout, p.batch, p.in_channels, p.h.in, p.w.in);
  tensor("w", p.w_layout, p.in_channels, p.group_out(), p.h.kernel, p.w.kernel);
  tensor("y", p.y_layout, p.batch, p.out_channels, p.h.out, p.w.out);
  pair("stride", p.h.stride, p.w.stride);
  pair("near_pad", p.h.near_pad, p.w.near_pad);
  pair("dilation", p.h.dilation, p.w.dilation);
  out << "  groups " << p.groups;
  if (p.has_bias) out << "  bias";
  return out.str();
}

}  // namespace convt2d
