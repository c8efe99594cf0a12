#include "torch/overrideable.h"

#include <algorithm>
#include <stdexcept>

namespace convt2d {
namespace {

// ATen's rule on CUDA: channels_last_result() of _dispatch.py.
bool channels_last_result(const View& x, const View& w) {
  return x.dtype != aoti_torch_dtype_float64() && x.size[0] != 0 &&
         (x.channels_last() || w.channels_last());
}

// The arguments of convolution_overrideable that follow the tensors, as scalars of forward without a
// precision. The results of all three passes lie as the operands of the forward say.
Scalars convolution_scalars(Stack& stack, const Tensor& x, const Tensor& w) {
  const std::vector<int64_t> stride = stack.integers(), padding = stack.integers(),
                             dilation = stack.integers();
  const bool transposed = stack.flag();
  const std::vector<int64_t> output_padding = stack.integers();
  Scalars s;
  s.groups = stack.integer();
  for (const auto* list : {&stride, &padding, &dilation, &output_padding}) {
    if (transposed && list->size() == 2) continue;
    throw std::runtime_error(
        "convt2d: convolution_overrideable of CPU and CUDA tensors is convt2d_ext's, for "
        "transposed "
        "convolutions in two dimensions with two numbers in each list");
  }
  const View input = view_of(x, "input", 4), weight = view_of(w, "weight", 4);
  for (const int axis : {0, 1}) {
    s.stride[axis] = stride[axis];
    s.pad[axis] = padding[axis];
    s.dilation[axis] = dilation[axis];
    s.extent[axis] = output_extent(input.size[2 + axis], weight.size[2 + axis], stride[axis],
                                   padding[axis], output_padding[axis], dilation[axis]);
  }
  s.channels_last = channels_last_result(input, weight);
  s.algorithm = -1;
  return s;
}

}  // namespace

Call convolution_call(StableIValue* stack, uint64_t arguments, int64_t (*precision)()) {
  Stack from(stack, arguments);
  Tensor x = from.tensor(), w = from.tensor(), bias = from.optional_tensor();
  Scalars scalars = convolution_scalars(from, x, w);
  scalars.precision = is_float(x) ? precision() : 0;
  return forward_call(std::move(x), std::move(w), std::move(bias), scalars);
}

Backward Backward::from_lists(StableIValue* stack, uint64_t arguments) {
  Stack from(stack, arguments);
  Backward given;
  for (Tensor* tensor : {&given.grad_y, &given.x, &given.w}) *tensor = from.tensor();
  given.scalars = convolution_scalars(from, given.x, given.w);
  const std::vector<uint8_t> wanted = from.flags();
  std::copy(wanted.begin(), wanted.begin() + 3, given.wanted);
  return given;
}

Backward Backward::from_scalars(StableIValue* stack, uint64_t arguments) {
  Stack from(stack, arguments);
  Backward given;
  for (Tensor* tensor : {&given.grad_y, &given.x, &given.w}) *tensor = from.tensor();
  Scalars& s = given.scalars;
  for (int64_t* pair : {s.stride, s.pad, s.dilation}) {
    pair[0] = from.integer();
    pair[1] = from.integer();
  }
  s.groups = from.integer();
  for (bool& one : given.wanted) one = from.flag();
  s.channels_last =
      channels_last_result(view_of(given.x, "input", 4), view_of(given.w, "weight", 4));
  s.algorithm = -1;
  return given;
}

void Backward::pass_to(const char* op, StableIValue* stack) {
  StableIValue call[13], *next = call;
  for (Tensor* tensor : {&grad_y, &x, &w}) *next++ = torch::stable::detail::from(tensor->release());
  for (const int64_t* pair : {scalars.stride, scalars.pad, scalars.dilation}) {
    *next++ = torch::stable::detail::from(pair[0]);
    *next++ = torch::stable::detail::from(pair[1]);
  }
  *next++ = torch::stable::detail::from(scalars.groups);
  for (const bool one : wanted) *next++ = torch::stable::detail::from(one);
  last_failure() = std::string(op) + " failed";
  if (torch_call_dispatcher(op, "", call, TORCH_ABI_VERSION) != TORCH_SUCCESS) {
    throw std::runtime_error(last_failure());
  }
  std::copy(call, call + 3, stack);
}

void differentiable_backward_op(StableIValue* stack, uint64_t arguments, uint64_t) {
  const bool differentiable = aoti_torch_grad_mode_is_enabled();
  Backward::from_lists(stack, arguments)
      .pass_to(differentiable ? "convt2d::gradients" : "convt2d::backward", stack);
}

std::string& last_failure() {
  static thread_local std::string text;
  return text;
}

void set_extent(Scalars& scalars, const Tensor& like) {
  const View view = view_of(like, "a tensor", 4);
  scalars.extent[0] = view.size[2];
  scalars.extent[1] = view.size[3];
}

bool is_float(const Tensor& tensor) {
  int32_t dtype;
  checked(aoti_torch_get_dtype(tensor.get(), &dtype), "reading a dtype");
  return dtype == aoti_torch_dtype_float32();
}

Tensor laid_out_like(const Tensor& x, Tensor grad_y) {
  const View view = view_of(grad_y, "grad_y", 4);
  if (view.dense(false) || view.dense(true)) return grad_y;
  const View like = view_of(x, "input", 4);
  const bool last = like.dense(true) && !like.dense(false);
  StableIValue stack[2] = {
      torch::stable::detail::from(grad_y.release()),
      torch::stable::detail::from(last ? aoti_torch_memory_format_channels_last()
                                       : aoti_torch_memory_format_contiguous_format())};
  checked(torch_call_dispatcher("aten::contiguous", "", stack, TORCH_ABI_VERSION),
          "copying a gradient");
  return Tensor(torch::stable::detail::to<AtenTensorHandle>(stack[0]));
}

Tensor undefined() {
  AtenTensorHandle handle = nullptr;
  checked(aoti_torch_new_uninitialized_tensor(&handle), "making an undefined tensor");
  return Tensor(handle);
}

void raise_after_the_pass(const OutOfMemory& refused, const Tensor& like) {
  StableIValue stack[2] = {torch::stable::detail::from(share(like).release()),
                           torch::stable::detail::from(refused.sizes)};
  if (torch_call_dispatcher("convt2d::out_of_memory", "", stack, TORCH_ABI_VERSION) !=
      TORCH_SUCCESS) {
    throw refused;
  }
}

}  // namespace convt2d
