// Problem + Plan + Args → NchwWeightParams → the kernel, the sum of its pieces, the bias gradient if wanted.
#include "cuda/direct/direct.h"
#include "cuda/hopper/hopper_nchw_weight.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda::hopper {

void launch_nchw_grad_weight(const Problem& problem, const Plan& plan, const Args& args) {
  const NchwWeightParams params = nchw_weight_params(problem, plan, args);
  launch_nchw_weight(problem.dtype, plan.row, params, nchw_weight_maps(params, plan.row, args),
                     nchw_weight_blocks(params), args.stream);
  if (params.partials) launch_weight_sum(problem, params.split, args, true);
  if (problem.has_bias) launch_grad_bias(problem, args);
}

}  // namespace convt2d::cuda::hopper
