// Problem + Plan + Args → GatherParams → the launcher of the dtype.
#include "cuda/hopper/hopper_launch.h"

#include <cstdint>

#include "cuda/hopper/hopper.h"
#include "cuda/hopper/hopper_plan.h"

namespace convt2d::cuda {
namespace hopper {
namespace {

bool aligned(const void* pointer, size_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

void fill(GatherParams& params, const Problem& problem, const Args& args) {
  const bool forward = problem.direction == Direction::fwd;
  const TensorRef& source = forward ? args.x : args.y;
  const TensorRef& destination = forward ? args.y : args.x;
  params.source = source.data;
  params.destination = destination.data;
  params.weight = args.w.data;
  params.bias = forward && problem.has_bias ? args.bias : nullptr;
  for (int i = 0; i < 4; ++i) {
    params.source_stride[i] = static_cast<int32_t>(source.stride[i]);
    params.destination_stride[i] = static_cast<int32_t>(destination.stride[i]);
  }
  params.weight_group = static_cast<int32_t>(args.w.stride[0] * problem.group_in());
  params.weight_reduce = static_cast<int32_t>(args.w.stride[forward ? 0 : 1]);
  params.weight_column = static_cast<int32_t>(args.w.stride[forward ? 1 : 0]);
  params.weight_h = static_cast<int32_t>(args.w.stride[2]);
  params.weight_w = static_cast<int32_t>(args.w.stride[3]);

  // Weights may have any strides; wide loads where they allow them.
  const int64_t vector = 16 / element_size(problem.dtype);
  params.weight_vectors = args.w.stride[1] == 1 && !forward && params.reduce % vector == 0 &&
                          args.w.stride[0] % vector == 0 && args.w.stride[2] % vector == 0 &&
                          args.w.stride[3] % vector == 0 && aligned(args.w.data, 16);
  params.weight_columns_first = params.weight_vectors || params.weight_column <= params.weight_w;
}

void launch(const Problem& problem, const Plan& plan, const Args& args) {
  GatherParams params;
  gather_shape(problem, choice_of(plan), params);
  params.walkers = walkers_of(plan);
  fill(params, problem, args);
  const auto run = problem.dtype == DType::f16    ? launch_gather_f16
                   : problem.dtype == DType::bf16 ? launch_gather_bf16
                                                  : launch_gather_tf32;
  run(plan.row, params, args.stream);
}

}  // namespace
}  // namespace hopper

const Family hopper_family = {"hopper", hopper::plan, hopper::launch};

}  // namespace convt2d::cuda
