// Problem + Plan + Args → Params → the kernel, the sum of its pieces, the bias gradient if wanted.
#include "cuda/comb/comb_launch.h"

#include "cuda/comb/comb.h"
#include "cuda/comb/comb_plan.h"
#include "cuda/grad_bias/grad_bias.h"
#include "cuda/of_type.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda {
namespace comb {
namespace {

void launch(const Problem& problem, const Plan& plan, const Args& args) {
  if (plan.row >= kTileCount) {
    const auto run = of_type(problem, launch_lines_f16, launch_lines_bf16, launch_lines_tf32);
    run(plan.row - kTileCount, line_params_of(problem, plan, args), args.stream);
  } else {
    const Params params = params_of(problem, plan, args);
    const auto run = of_type(problem, launch_f16, launch_bf16, launch_tf32, launch_f32x3);
    run(plan.row, params, args.stream);
    if (params.partials) launch_dense_weight_sum(problem, params.split, args);
  }
  if (problem.has_bias) launch_grad_bias(problem, args);
}

}  // namespace
}  // namespace comb

const Family comb_family = {"comb", comb::plan, comb::launch};

}  // namespace convt2d::cuda
