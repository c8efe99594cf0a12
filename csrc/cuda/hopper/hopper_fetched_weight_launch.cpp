// Problem + Plan + Args → FetchedWeightParams → the kernel, the sum of its pieces, the bias gradient if wanted.
#include "cuda/grad_bias/grad_bias.h"
#include "cuda/hopper/hopper_fetched_weight.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda::hopper {

void launch_fetched_grad_weight(const Problem& problem, const Plan& plan, const Args& args) {
  const FetchedWeightParams params = fetched_weight_params(problem, plan, args);
  launch_fetched_weight(problem.dtype, plan.row, params,
                        fetched_weight_maps(params, plan.row, args), fetched_weight_blocks(params),
                        args.stream);
  if (params.partials) launch_weight_sum(problem, params.split, args, true);
  if (problem.has_bias) launch_grad_bias(problem, args);
}

}  // namespace convt2d::cuda::hopper
