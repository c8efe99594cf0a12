// Problem + Plan + Args → Params → the kernel, the sum of its pieces, the bias gradient if wanted.
#include "cuda/braid/braid_launch.h"

#include "cuda/braid/braid.h"
#include "cuda/braid/braid_plan.h"
#include "cuda/of_type.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda {
namespace braid {
namespace {

void launch(const Problem& problem, const Plan& plan, const Args& args) {
  const Params params = params_of(problem, plan, args);
  const auto run = of_type(problem, launch_f16, launch_bf16, launch_tf32);
  run(plan.row, params, maps_of(problem, plan, params), args.stream);
  finish_grad_weight(problem, params, args, launch_dense_weight_sum);
}

}  // namespace
}  // namespace braid

const Family braid_family = {"braid", braid::plan, braid::launch};

}  // namespace convt2d::cuda
