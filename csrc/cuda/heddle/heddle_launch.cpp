// Problem + Plan + Args → Params → the kernel, the sum of its pieces, the bias gradient if wanted.
#include "cuda/heddle/heddle_launch.h"

#include "cuda/direct/direct.h"
#include "cuda/heddle/heddle.h"
#include "cuda/heddle/heddle_input.h"
#include "cuda/heddle/heddle_plan.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda {
namespace heddle {
namespace {

void launch(const Problem& problem, const Plan& plan, const Args& args) {
  if (problem.direction == Direction::grad_input)
    return launch_input(problem, input_params(problem, plan, args), args.stream);
  const Params params = params_of(problem, plan, args);
  const auto run = problem.precision == Precision::tf32 ? launch_tf32 : launch_f32x3;
  run(plan.row, params, args.stream);
  if (params.partials) launch_weight_sum(problem, params.split, args, true);
  if (problem.has_bias) launch_grad_bias(problem, args);
}

Decision plan_of_direction(const Problem& problem, const Device& device) {
  return problem.direction == Direction::grad_input ? input_plan(problem, device)
                                                    : plan(problem, device);
}

}  // namespace
}  // namespace heddle

const Family heddle_family = {"heddle", heddle::plan_of_direction, heddle::launch};

}  // namespace convt2d::cuda
