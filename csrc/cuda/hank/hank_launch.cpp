// Problem + Plan + Args → Params → the kernel, the sum of its pieces, the bias gradient if wanted.
#include "cuda/hank/hank_launch.h"

#include "cuda/hank/hank.h"
#include "cuda/hank/hank_plan.h"
#include "cuda/of_type.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda {
namespace hank {
namespace {

void launch(const Problem& problem, const Plan& plan, const Args& args) {
  const Params params = params_of(problem, plan, args);
  const auto run = of_type(problem, launch_f16, launch_bf16, launch_tf32);
  run(plan.row, params, maps_of(problem, params), args.stream);
  finish_grad_weight(problem, params, args);
}

}  // namespace
}  // namespace hank

const Family hank_family = {"hank", hank::plan, hank::launch};

}  // namespace convt2d::cuda
