// Problem + Plan + Args → FetchedWeightParams → the kernel, the sum of its pieces, the bias gradient if wanted.
#include "cuda/hopper/hopper_fetched_weight.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda::hopper {

void launch_fetched_grad_weight(const Problem& problem, const Plan& plan, const Args& args) {
  const FetchedWeightParams params = fetched_weight_params(problem, plan, args);
  launch_fetched_weight(problem.dtype, plan.row, params,
                        fetched_weight_maps(params, plan.row, args), fetched_weight_blocks(params),
                        args.stream);
  finish_grad_weight(problem, params, args);
}

}  // namespace convt2d::cuda::hopper
