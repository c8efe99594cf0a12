// The ops without tensors: what would be chosen, and by which names families are forced. And, in a
// build without CUDA kernels, the sentence that a CUDA call gets instead of a result.

#include <torch/csrc/stable/library.h>

#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/choose.h"
#include "core/forms.h"
#include "cpu/cpu_families.h"
#include "torch/overrideable.h"
#include "torch/tensor_args.h"
#ifdef CONVT2D_WITH_CUDA
#include "cuda/cuda_families.h"
#include "cuda/grad_bias/grad_bias.h"
#endif

namespace convt2d {
namespace {

constexpr const char* kNoCuda =
    "convt2d: this build of convt2d_ext has no CUDA kernels: it was compiled with "
    "CONVT2D_CUDA=off, or "
    "no CUDA toolkit was found. Install the released wheel, or rebuild with CONVT2D_CUDA=on";

FamilyList families_of(const std::string& device) {
  if (device == "cpu") return cpu::families();
#ifdef CONVT2D_WITH_CUDA
  return cuda::families();
#else
  throw std::runtime_error(kNoCuda);
#endif
}

Device device_of(const std::string& device) {
  if (device == "cpu") return cpu::device();
#ifdef CONVT2D_WITH_CUDA
  const std::string prefix = "cuda";
  if (device.compare(0, prefix.size(), prefix) != 0) return cuda::invented_device(device.c_str());
  const bool indexed = device.size() > prefix.size() + 1;
  return cuda::device(indexed ? std::stoi(device.substr(prefix.size() + 1)) : 0);
#else
  throw std::runtime_error(kNoCuda);
#endif
}

template <class Enum>
Enum as_enum(int64_t value, int64_t count, const char* what) {
  if (value >= 0 && value < count) return Enum(value);
  throw std::invalid_argument(std::string("convt2d: ") + what + " " + std::to_string(value) +
                              " does not exist");
}

std::string families_op(const std::string& device) {
  const FamilyList families = families_of(device);
  std::string names;
  for (int i = 0; i < families.count; ++i) {
    names += std::string(i ? "," : "") + families.first[i].name;
  }
  return names;
}

std::string explain_op(int64_t direction, int64_t dtype, int64_t precision,
                       const std::vector<int64_t>& sizes, const std::vector<int64_t>& layouts,
                       int64_t has_bias, const std::string& device, int64_t algorithm) {
  if (sizes.size() != 16 || layouts.size() != 3) {
    throw std::invalid_argument("convt2d: explain takes 16 sizes and 3 layouts");
  }
  const auto axis = [&](int first) {
    return Axis{sizes[first],     sizes[first + 1], sizes[first + 2],
                sizes[first + 3], sizes[first + 4], sizes[first + 5]};
  };
  const auto layout = [&](int which) { return as_enum<Layout>(layouts[which], 3, "layout"); };
  Problem p{};
  p.batch = sizes[0];
  p.in_channels = sizes[1];
  p.out_channels = sizes[2];
  p.groups = sizes[3];
  p.h = axis(4);
  p.w = axis(10);
  p.direction = as_enum<Direction>(direction, 3, "direction");
  p.dtype = as_enum<DType>(dtype, 4, "dtype");
  p.precision = as_enum<Precision>(precision, 2, "precision");
  p.x_layout = layout(0);
  p.w_layout = layout(1);
  p.y_layout = layout(2);
  p.has_bias = has_bias != 0 && p.direction != Direction::grad_input;
  const auto elements = [](int64_t a, int64_t b, int64_t c, int64_t d) {
    return double(a) * double(b) * double(c) * double(d);
  };
  p.wide_index = elements(p.batch, p.in_channels, p.h.in, p.w.in) > INT32_MAX ||
                 elements(p.batch, p.out_channels, p.h.out, p.w.out) > INT32_MAX ||
                 elements(p.in_channels, p.out_channels, p.h.kernel, p.w.kernel) >
                     double(INT32_MAX) * double(p.groups);
  const FamilyList families = families_of(device);
  const Device gpu = device_of(device);
  Form form = Form::given;
  std::string read_as;
#ifdef CONVT2D_WITH_CUDA
  if (device != "cpu") {
    const auto predicted = [&](const Problem& problem) {
      return least_predicted(families, problem, gpu, int(algorithm));
    };
    const auto bias_us = [&](const Problem& problem) { return cuda::grad_bias_us(problem, gpu); };
    form = better_form(p, predicted, bias_us);
    if (form != Form::given) {
      read_as = describe(p) + ", " + name_of(form);
      if (leaves_bias(p, form))
        read_as +=
            ", the bias gradient apart in " + std::to_string(std::lround(bias_us(p))) + " us";
      read_as += ":\n";
    }
  }
#endif
  return read_as + explain(families, in_form(form, p), gpu, int(algorithm));
}

}  // namespace
}  // namespace convt2d

STABLE_TORCH_LIBRARY_IMPL(convt2d, CompositeExplicitAutograd, library) {
  library.impl("families", TORCH_BOX(&convt2d::families_op));
  library.impl("explain", TORCH_BOX(&convt2d::explain_op));
}

#ifndef CONVT2D_WITH_CUDA
namespace {

// Takes the call off the stack like the real op would, or its tensors would never be freed.
template <convt2d::Call (*take)(StableIValue*, uint64_t, uint64_t)>
void refuse_op(StableIValue* stack, uint64_t arguments, uint64_t results) {
  const convt2d::Call call = take(stack, arguments, results);
  throw std::runtime_error(convt2d::kNoCuda);
}

void refuse_convolution_op(StableIValue* stack, uint64_t arguments, uint64_t) {
  const convt2d::Call call = convt2d::convolution_call(stack, arguments, [] { return int64_t{0}; });
  throw std::runtime_error(convt2d::kNoCuda);
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("convolution_overrideable", refuse_convolution_op);
}

STABLE_TORCH_LIBRARY_IMPL(convt2d, CUDA, library) {
  library.impl("forward", refuse_op<convt2d::forward_call>);
  library.impl("forward.packed", refuse_op<convt2d::forward_call>);
  library.impl("grad_input", refuse_op<convt2d::grad_input_call>);
  library.impl("grad_input.packed", refuse_op<convt2d::grad_input_call>);
  library.impl("grad_weight", refuse_op<convt2d::grad_weight_call>);
  library.impl("grad_weight.packed", refuse_op<convt2d::grad_weight_call>);
  library.impl("grad_weight.packed_with_bias", refuse_op<convt2d::grad_weight_call>);
  library.impl("grad_bias", refuse_op<convt2d::grad_bias_call>);
}
#endif
