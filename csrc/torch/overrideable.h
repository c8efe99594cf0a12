// aten::convolution_overrideable and its backward, on tensors of CPUs and of CUDA.
//
// torch keeps this op for convolutions from outside of it, and has no kernel of its own for it. What it
// does have is the op's node of the autograd graph, in C++: the engine runs our backward without Python,
// which a node of ours cannot do (the stable ABI knows no nodes). Python around a gradient, and the
// interpreter's lock that the engine's thread waits for, take longer than the kernels of a small layer.
// _autograd.py says which calls come this way.
//
// The ops do what their schemas say, so anyone may call them; in fp32 they obey the precision flag as it
// stands when they run, like ATen's convolutions.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/c/shim.h>
#include <torch/csrc/stable/library.h>

#include "torch/tensor_args.h"

namespace convt2d {

// The spatial size of a tensor becomes the extent of a result.
void set_extent(Scalars& scalars, const Tensor& like);

bool is_float(const Tensor& tensor);

// One copy for both gradients where dY is a part of a larger tensor, as from torch.cat. Kernels read such
// memory, but their fast ways are for whole tensors; torch copies it too.
Tensor laid_out_like(const Tensor& x, Tensor grad_y);

// What a schema calls a Tensor and nobody asked for.
Tensor undefined();

// Lets the pass of the engine that is under way end with torch's own OutOfMemoryError, a type that nothing
// here can throw. Throws `refused` where no pass is under way.
void raise_after_the_pass(const OutOfMemory& refused, const Tensor& like);

// Takes the arguments of aten::convolution_overrideable off the stack. `precision` is asked in fp32.
Call convolution_call(StableIValue* stack, uint64_t arguments, int64_t (*precision)());

// `Ops` are those of a device: run(Call&), run_grad_bias(Call&), and the `precision` scalar as of now.
template <class Ops>
void convolution_op(StableIValue* stack, uint64_t arguments, uint64_t) {
  Call call = convolution_call(stack, arguments, Ops::precision);
  Ops::run(call);
  return_results(call, stack);
}

// What a backward is given: by aten::convolution_backward_overrideable in lists, by ours in scalars.
struct Backward {
  Tensor grad_y, x, w;
  Scalars scalars;
  bool wanted[3];

  static Backward from_lists(StableIValue* stack, uint64_t arguments);
  static Backward from_scalars(StableIValue* stack, uint64_t arguments);
  // Hands it on to another op of ours, whose results become those of this one.
  void pass_to(const char* op, StableIValue* stack);
};

template <class Ops>
void compute_gradients(Backward& given, Tensor (&gradients)[3]) {
  auto& [grad_y, x, w, scalars, wanted] = given;
  if (wanted[0] || wanted[1]) {
    scalars.precision = is_float(x) ? Ops::precision() : 0;
    grad_y = laid_out_like(x, std::move(grad_y));
  }
  if (wanted[0]) {
    set_extent(scalars, x);
    Call call = grad_input_call(share(grad_y), share(w), scalars);
    Ops::run(call);
    gradients[0] = std::move(call.result);
  }
  if (wanted[1]) {
    set_extent(scalars, w);
    scalars.with_bias = wanted[2];
    Call call = grad_weight_call(share(grad_y), share(x), scalars);
    Ops::run(call);
    gradients[1] = std::move(call.result);
    gradients[2] = std::move(call.grad_bias);
  } else if (wanted[2]) {
    Call call = grad_bias_call(share(grad_y));
    Ops::run_grad_bias(call);
    gradients[2] = std::move(call.grad_bias);
  }
}

template <class Ops>
void return_gradients(Backward given, StableIValue* stack) {
  Tensor gradients[3];
  try {
    compute_gradients<Ops>(given, gradients);
  } catch (const OutOfMemory& refused) {
    raise_after_the_pass(refused, given.x);
  }
  for (Tensor& gradient : gradients) {
    Tensor result = gradient ? std::move(gradient) : undefined();
    *stack++ = torch::stable::detail::from(result.release());
  }
}

// What went wrong last in a backward_op of this thread: the shim keeps exceptions to itself.
std::string& last_failure();

// convt2d::backward
template <class Ops>
void backward_op(StableIValue* stack, uint64_t arguments, uint64_t) {
  try {
    return_gradients<Ops>(Backward::from_scalars(stack, arguments), stack);
  } catch (const std::exception& error) {
    last_failure() = error.what();
    throw;
  }
}

// aten::convolution_backward_overrideable where autograd is through with it
template <class Ops>
void convolution_backward_op(StableIValue* stack, uint64_t arguments, uint64_t) {
  return_gradients<Ops>(Backward::from_lists(stack, arguments), stack);
}

// aten::convolution_backward_overrideable under the keys of autograd. The engine asks for derivatives of a
// backward by leaving gradients enabled; then Python's functions do it, which are differentiable to any
// order. Otherwise an op of ours, since dispatch modes want to see one.
void differentiable_backward_op(StableIValue* stack, uint64_t arguments, uint64_t results);

}  // namespace convt2d
