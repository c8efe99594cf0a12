// Problem + Plan + Args → GatherParams → the kernel.
#include "cuda/fan/fan_launch.h"

#include "cuda/fan/fan.h"

namespace convt2d::cuda {
namespace fan {
namespace {

void launch(const Problem& problem, const Plan& plan, const Args& args) {
  const GatherParams params = params_of(problem, plan, args);
  launch_tile(plan.row, params, maps_of(params), args.stream);
}

}  // namespace
}  // namespace fan

const Family fan_family = {"fan", fan::plan, fan::launch};

}  // namespace convt2d::cuda
