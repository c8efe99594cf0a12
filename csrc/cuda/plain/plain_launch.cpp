// Problem + Plan + Args → Params → the kernel; of grad_weight also the sum of its pieces, and the bias gradient if wanted.
#include "cuda/plain/plain_launch.h"

#include "cuda/plain/plain.h"
#include "cuda/plain/plain_plan.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda {
namespace plain {
namespace {

void launch(const Problem& problem, const Plan& plan, const Args& args) {
  const bool half = problem.dtype == DType::f16;
  const Maps maps = maps_of(problem, args);
  if (problem.direction != Direction::grad_weight) {
    const auto run = half ? launch_f16 : launch_bf16;
    run(plan.row, problem.direction == Direction::fwd, params_of(problem, plan, args), maps,
        args.stream);
    return;
  }
  const WeightParams params = weight_params_of(problem, plan, args);
  const auto run = half ? launch_weight_f16 : launch_weight_bf16;
  run(plan.row, params, maps, args.stream);
  finish_grad_weight(problem, params, args, launch_dense_weight_sum, false);
}

}  // namespace
}  // namespace plain

const Family plain_family = {"plain", plain::plan, plain::launch};

}  // namespace convt2d::cuda
