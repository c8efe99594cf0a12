#include "cuda/hopper/hopper_weight_launch.h"

#include "cuda/gather_params.h"
#include "cuda/hopper/hopper_fetched_weight.h"
#include "cuda/hopper/hopper_packed_weight.h"
#include "cuda/hopper/hopper_weight_plan.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda::hopper {

void launch_grad_weight(const Problem& problem, const Plan& plan, const Args& args) {
  if (is_fetched_weight(problem, plan)) return launch_fetched_grad_weight(problem, plan, args);
  if (is_packed_weight(problem, plan)) {
    const PackedWeightParams params = packed_weight_params(problem, plan, args);
    launch_packed_weight(problem.dtype, plan.row, params, packed_weight_map(params, args),
                         packed_weight_blocks(params), args.stream);
    return finish_grad_weight(problem, params, args);
  }
  WeightParams params = *static_cast<const WeightParams*>(plan.prepared.get());
  params.weight = args.w.data;
  params.x = args.x.data;
  params.partials = params.split > 1 ? static_cast<float*>(args.workspace) : nullptr;
  for (int i = 0; i < 4; ++i) params.weight_stride[i] = static_cast<int32_t>(args.w.stride[i]);
  params.weight_quads = args.w.stride[1] == 1 && aligned(args.w.data, 8) &&
                        (args.w.stride[0] | args.w.stride[2] | args.w.stride[3]) % 4 == 0;
  launch_weight(problem.dtype, plan.row, params, weight_maps(params, args.x.data, args.y.data),
                weight_combinations(params) * params.split, args.stream);
  finish_grad_weight(problem, params, args);
}

}  // namespace convt2d::cuda::hopper
