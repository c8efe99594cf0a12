// Stable-ABI tensors in, Problem + Args out. Errors about tensors end here, with the values in them;
// Python has already given users torch's own messages, so this is the last line in front of a kernel.
#pragma once

#include <torch/csrc/stable/library.h>

#include <memory>

#include "core/args.h"
#include "core/problem.h"

namespace convt2d {

struct DeleteTensor {
  void operator()(AtenTensorOpaque* tensor) const { aoti_torch_delete_tensor_object(tensor); }
};
using Tensor = std::unique_ptr<AtenTensorOpaque, DeleteTensor>;

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

// Bytes for args.workspace, on the device of the call; nothing for 0.
void allocate_workspace(Call& call, int64_t bytes);

// Hands the results over to the dispatcher.
void return_results(Call& call, StableIValue* stack);

}  // namespace convt2d
