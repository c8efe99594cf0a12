// Problem + Plan + Args → Params → the kernel.
#include "cuda/spread/spread_launch.h"

#include "cuda/spread/spread.h"
#include "cuda/spread/spread_input.h"
#include "cuda/spread/spread_plan.h"

namespace convt2d::cuda {
namespace spread {
namespace {

void launch(const Problem& problem, const Plan& plan, const Args& args) {
  if (problem.direction == Direction::grad_input) {
    const InputParams params = input_params_of(problem, plan, args);
    launch_input(problem.dtype, plan.row, params, input_map_of(params), args.stream);
    return;
  }
  const Params params = params_of(problem, plan, args);
  const auto run = params.number_bytes == 4 ? launch_words : launch_halves;
  run(problem.dtype, plan.row, params, map_of(params, kTiles[plan.row]), args.stream);
}

}  // namespace
}  // namespace spread

const Family spread_family = {"spread", spread::plan, spread::launch};

}  // namespace convt2d::cuda
