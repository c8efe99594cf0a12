// Problem + Plan + Args → Params → the kernel; of grad_weight, the sum of its pieces and the bias gradient if wanted.
#include "cuda/narrow/narrow_launch.h"

#include "cuda/narrow/narrow.h"
#include "cuda/narrow/narrow_plan.h"
#include "cuda/narrow/narrow_ribbon.h"
#include "cuda/narrow/narrow_weight.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda {
namespace narrow {
namespace {

void launch_weight(const Problem& problem, const Plan& plan, const Args& args) {
  const WeightParams params = weight_params_of(problem, plan, args);
  const auto run = problem.dtype == DType::f32 ? launch_weight_words : launch_weight_halves;
  run(problem, plan.row, params, args.stream);
  finish_grad_weight(problem, params, args);
}

void launch(const Problem& problem, const Plan& plan, const Args& args) {
  if (problem.direction == Direction::grad_weight) return launch_weight(problem, plan, args);
  if (plan.row >= kTileCount) {
    const RibbonParams params = ribbon_params_of(problem, plan, args);
    launch_ribbon(problem.dtype, plan.row - kTileCount, params, ribbon_map_of(params), args.stream);
    return;
  }
  const Params params = params_of(problem, plan, args);
  const auto run = params.number_bytes == 4 ? launch_words : launch_halves;
  run(problem.dtype, plan.row, params, map_of(params, kTiles[plan.row]), args.stream);
}

Decision plan_of_direction(const Problem& problem, const Device& device) {
  return problem.direction == Direction::grad_weight ? weight_plan(problem, device)
                                                     : plan(problem, device);
}

}  // namespace
}  // namespace narrow

const Family narrow_family = {"narrow", narrow::plan_of_direction, narrow::launch};

}  // namespace convt2d::cuda
