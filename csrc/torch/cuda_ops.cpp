// The inner ops on CUDA tensors: check -> Problem -> Plan -> Args -> launch, three lines an op.

#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/c/shim.h>

#include <limits>
#include <stdexcept>

#include "core/forms.h"
#include "cuda/cuda_families.h"
#include "cuda/grad_bias/grad_bias.h"
#include "torch/choice_cache.h"
#include "torch/overrideable.h"
#include "torch/precision_flag.h"
#include "torch/tensor_args.h"

namespace convt2d::cuda {
namespace {

// The one symbol needed from libtorch_cuda. Looked up instead of linked, so that the same file loads
// where torch has no CUDA libraries. A weak symbol would be null even where they are loaded.
using CurrentStream = AOTITorchError (*)(int32_t device_index, void** stream);

CurrentStream find_current_stream() {
  void* library = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
  return library ? CurrentStream(dlsym(library, "aoti_torch_get_current_cuda_stream")) : nullptr;
}

void* current_stream(int32_t device_index) {
  static const CurrentStream find = find_current_stream();
  void* stream = nullptr;
  if (find == nullptr || find(device_index, &stream) != TORCH_SUCCESS) {
    throw std::runtime_error(
        "convt2d: torch's current CUDA stream is not available: libtorch_cuda.so is not loaded, so "
        "this torch was built without CUDA");
  }
  return stream;
}

Form form_of(const Backend& backend, const Call& call) {
  const auto predicted = [&](const Problem& problem) {
    try {
      return cached_choice(backend, problem, call.algorithm).plan.predicted_us;
    } catch (const std::invalid_argument&) {  // by a family that was asked for by name
      return std::numeric_limits<double>::infinity();
    }
  };
  return better_form(call.problem, predicted, [&](const Problem& problem) {
    return grad_bias_us(problem, *backend.device);
  });
}

void run_grad_bias(Call& call) {
  if (call.empty) return;
  const torch::stable::accelerator::DeviceGuard guard(call.device_index);
  allocate_workspace(call, grad_bias_workspace_bytes(call.problem));
  call.args.stream = current_stream(call.device_index);
  launch_grad_bias(call.problem, call.args);
}

void run(Call& call) {
  if (call.empty) return;
  if (call.ask_precision) call.problem.precision = ambient_precision();
  const torch::stable::accelerator::DeviceGuard guard(call.device_index);
  const Backend backend{families(), &device(call.device_index), call.device_index};
  const Form form = form_of(backend, call);
  if (leaves_bias(call.problem, form)) run_grad_bias(call);
  if (form != Form::given) {
    call.problem = in_form(form, call.problem);
    call.args = in_form(call.problem, call.args);
  }
  const Choice& choice = cached_choice(backend, call.problem, call.algorithm);
  allocate_workspace(call, choice.plan.workspace_bytes);
  call.args.stream = current_stream(call.device_index);
  choice.family->launch(call.problem, choice.plan, call.args);
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
  static void run(Call& call) { cuda::run(call); }
  static void run_grad_bias(Call& call) { cuda::run_grad_bias(call); }
  static int64_t precision() { return ambient_precision() == Precision::tf32; }
};

}  // namespace
}  // namespace convt2d::cuda

STABLE_TORCH_LIBRARY_IMPL(convt2d, CUDA, library) {
  library.impl("forward", convt2d::cuda::forward_op);
  library.impl("forward.packed", convt2d::cuda::forward_op);
  library.impl("grad_input", convt2d::cuda::grad_input_op);
  library.impl("grad_input.packed", convt2d::cuda::grad_input_op);
  library.impl("grad_weight", convt2d::cuda::grad_weight_op);
  library.impl("grad_weight.packed", convt2d::cuda::grad_weight_op);
  library.impl("grad_weight.packed_with_bias", convt2d::cuda::grad_weight_op);
  library.impl("grad_bias", convt2d::cuda::grad_bias_op);
  library.impl("backward", convt2d::backward_op<convt2d::cuda::Ops>);
}

STABLE_TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("convolution_overrideable", convt2d::convolution_op<convt2d::cuda::Ops>);
  library.impl("convolution_backward_overrideable",
               convt2d::convolution_backward_op<convt2d::cuda::Ops>);
}

STABLE_TORCH_LIBRARY_IMPL(aten, AutogradCUDA, library) {
  library.impl("convolution_backward_overrideable", convt2d::differentiable_backward_op);
}
