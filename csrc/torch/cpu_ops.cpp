// The inner ops on CPU tensors: check -> Problem -> Plan -> Args -> launch, three lines an op.

#include "cpu/cpu_families.h"
#include "torch/choice_cache.h"
#include "torch/overrideable.h"
#include "torch/tensor_args.h"

namespace convt2d::cpu {
namespace {

void run(Call& call) {
  if (call.empty) return;
  const Backend backend{families(), &device(), -1};
  const Choice& choice = cached_choice(backend, call.problem, call.algorithm);
  allocate_workspace(call, choice.plan.workspace_bytes);
  choice.family->launch(call.problem, choice.plan, call.args);
}

void run_grad_bias(Call& call) {
  if (!call.empty) grad_bias(call.problem, call.args);
}

void forward_op(StableIValue* stack, uint64_t arguments, uint64_t results) {
  Call call = forward_call(stack, arguments, results);
  run(call);
  return_results(call, stack);
}

void grad_input_op(StableIValue* stack, uint64_t arguments, uint64_t results) {
  Call call = grad_input_call(stack, arguments, results);
  run(call);
  return_results(call, stack);
}

void grad_weight_op(StableIValue* stack, uint64_t arguments, uint64_t results) {
  Call call = grad_weight_call(stack, arguments, results);
  run(call);
  return_results(call, stack);
}

void grad_bias_op(StableIValue* stack, uint64_t arguments, uint64_t results) {
  Call call = grad_bias_call(stack, arguments, results);
  run_grad_bias(call);
  return_results(call, stack);
}

struct Ops {
  static void run(Call& call) { cpu::run(call); }
  static void run_grad_bias(Call& call) { cpu::run_grad_bias(call); }
  static int64_t precision() { return 0; }  // a CPU has no TF32
};

}  // namespace
}  // namespace convt2d::cpu

STABLE_TORCH_LIBRARY_IMPL(convt2d, CPU, library) {
  library.impl("forward", convt2d::cpu::forward_op);
  library.impl("forward.packed", convt2d::cpu::forward_op);
  library.impl("grad_input", convt2d::cpu::grad_input_op);
  library.impl("grad_input.packed", convt2d::cpu::grad_input_op);
  library.impl("grad_weight", convt2d::cpu::grad_weight_op);
  library.impl("grad_weight.packed", convt2d::cpu::grad_weight_op);
  library.impl("grad_weight.packed_with_bias", convt2d::cpu::grad_weight_op);
  library.impl("grad_bias", convt2d::cpu::grad_bias_op);
  library.impl("backward", convt2d::backward_op<convt2d::cpu::Ops>);
}

STABLE_TORCH_LIBRARY_IMPL(aten, CPU, library) {
  library.impl("convolution_overrideable", convt2d::convolution_op<convt2d::cpu::Ops>);
  library.impl("convolution_backward_overrideable",
               convt2d::convolution_backward_op<convt2d::cpu::Ops>);
}

STABLE_TORCH_LIBRARY_IMPL(aten, AutogradCPU, library) {
  library.impl("convolution_backward_overrideable", convt2d::differentiable_backward_op);
}
