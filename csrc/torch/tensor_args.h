// Stable-ABI tensors in, Problem + Args out. Errors about tensors end here, with the values in them;
// Python has already given users torch's own messages, so this is the last line in front of a kernel.
#pragma once

#include <torch/csrc/stable/library.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/args.h"
#include "core/problem.h"

namespace convt2d {

struct DeleteTensor {
  void operator()(AtenTensorOpaque* tensor) const { aoti_torch_delete_tensor_object(tensor); }
};
using Tensor = std::unique_ptr<AtenTensorOpaque, DeleteTensor>;

// Shim calls report failure by a code; torch has printed the reason by then.
void checked(AOTITorchError code, const char* what);

// torch would not allocate a result. The shim keeps torch's exception to itself; Python asks for the same
// memory once more, so that torch says it after all.
struct OutOfMemory : std::runtime_error {
  std::vector<int64_t> sizes;
  explicit OutOfMemory(std::vector<int64_t> sizes);
};

// Another handle of the same tensor.
Tensor share(const Tensor& tensor);

// What a tensor says about itself.
struct View {
  const char* label;
  void* data;
  int64_t size[4], stride[4];
  int32_t dtype, device_type, device_index;

  int64_t elements() const { return size[0] * size[1] * size[2] * size[3]; }
  // Whether its elements lie in one piece in that order; the strides of size-1 axes are noise.
  bool dense(bool channels_last) const;
  // Whether torch's suggest_memory_format() says so: is_channels_last() of _shape.py.
  bool channels_last() const;
};
// `label` is for messages: those of a rank other than this, and of later checks.
View view_of(const Tensor& tensor, const char* label, int64_t rank);

// The arguments of an op in schema order. Tensors are owned from the moment they are taken.
class Stack {
 public:
  Stack(const StableIValue* first, uint64_t count) : next_(first), end_(first + count) {}

  bool one_left() const { return end_ - next_ == 1; }
  int64_t integer() { return torch::stable::detail::to<int64_t>(*next_++); }
  bool flag() { return torch::stable::detail::to<bool>(*next_++); }
  std::string text() { return torch::stable::detail::to<std::string>(*next_++); }
  std::vector<int64_t> integers() {
    return torch::stable::detail::to<std::vector<int64_t>>(*next_++);
  }
  std::vector<uint8_t> flags();  // not vector<bool>, whose elements are none
  Tensor tensor() { return Tensor(torch::stable::detail::to<AtenTensorHandle>(*next_++)); }
  Tensor optional_tensor() {
    const std::unique_ptr<StableIValue> box(torch::stable::detail::to<StableIValue*>(*next_++));
    return Tensor(box ? torch::stable::detail::to<AtenTensorHandle>(*box) : nullptr);
  }

 private:
  const StableIValue *next_, *end_;
};

// Everything of forward, grad_input and grad_weight but the tensors. `extent` is the spatial size of the
// result.
struct Scalars {
  int64_t stride[2], pad[2], extent[2], dilation[2], groups;
  bool channels_last, with_bias = false;
  int64_t precision, algorithm;
};

// One call of an inner op, checked. It owns the tensors that `args` points into.
struct Call {
  Problem problem{};
  Args args;
  int32_t algorithm = -1;
  int32_t device_index = -1;
  bool empty = false;          // nothing to compute: the results are already right
  bool ask_precision = false;  // precision 2: the caller wants the flag as it stands now
  Tensor inputs[3];
  Tensor result, grad_bias;  // grad_bias: grad_weight and grad_bias only
  Tensor workspace;
};

// Each takes its arguments off the stack (library.cpp has the schemas) and allocates its results.
Call forward_call(StableIValue* stack, uint64_t arguments, uint64_t results);
Call grad_input_call(StableIValue* stack, uint64_t arguments, uint64_t results);
Call grad_weight_call(StableIValue* stack, uint64_t arguments, uint64_t results);
Call grad_bias_call(StableIValue* stack, uint64_t arguments, uint64_t results);

// The same from tensors. The gradient of the bias is a result of grad_weight if `scalars` want it.
Call forward_call(Tensor x, Tensor w, Tensor bias, const Scalars& scalars);
Call grad_input_call(Tensor grad_y, Tensor w, const Scalars& scalars);
Call grad_weight_call(Tensor grad_y, Tensor x, const Scalars& scalars);
Call grad_bias_call(Tensor grad_y);

// Bytes for args.workspace, on the device of the call; nothing for 0.
void allocate_workspace(Call& call, int64_t bytes);

// Hands the results over to the dispatcher.
void return_results(Call& call, StableIValue* stack);

}  // namespace convt2d
