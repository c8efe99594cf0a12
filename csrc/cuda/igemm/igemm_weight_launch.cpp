// grad_weight: Problem + Plan + Args → WeightParams → the launcher of the dtype.
#include "cuda/gather_params.h"
#include "cuda/igemm/igemm_launch.h"
#include "cuda/igemm/igemm_weight_plan.h"
#include "cuda/of_type.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda::igemm {
namespace {

// Wide accesses where addresses allow them; the tile itself does not depend on it.
WeightParams weight_params(Problem problem, const Plan& plan, const Args& args) {
  if (!aligned(args.x.data, 16)) problem.x_layout = Layout::strided;
  if (!aligned(args.y.data, 16)) problem.y_layout = Layout::strided;
  WeightParams params;
  weight_shape(problem, weight_choice_of(plan), params);
  params.x = args.x.data;
  params.y = args.y.data;
  params.weight = args.w.data;
  params.partials = writes_partials(params) ? static_cast<float*>(args.workspace) : nullptr;
  for (int i = 0; i < 4; ++i) {
    params.x_stride[i] = static_cast<int32_t>(args.x.stride[i]);
    params.y_stride[i] = static_cast<int32_t>(args.y.stride[i]);
    params.weight_stride[i] = static_cast<int32_t>(args.w.stride[i]);
  }
  return params;
}

}  // namespace

void launch_grad_weight(const Problem& problem, const Plan& plan, const Args& args) {
  const WeightParams params = weight_params(problem, plan, args);
  const auto run = of_type(problem, launch_weight_f16, launch_weight_bf16, launch_weight_tf32);
  run(plan.row, params, weight_combinations(params) * params.split, args.stream);
  finish_grad_weight(problem, params, args, launch_weight_sum, false);
}

}  // namespace convt2d::cuda::igemm
