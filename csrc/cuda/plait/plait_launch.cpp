// Problem + Plan + Args → Params → the kernel.
#include "cuda/plait/plait_launch.h"

#include "cuda/plait/plait.h"
#include "cuda/plait/plait_plan.h"

namespace convt2d::cuda {
namespace plait {
namespace {

void launch(const Problem& problem, const Plan& plan, const Args& args) {
  const Params params = params_of(problem, plan, args);
  launch_kernel(problem.dtype, params, maps_of(params), blocks_of(params), args.stream);
}

}  // namespace
}  // namespace plait

const Family plait_family = {"plait", plait::plan, plait::launch};

}  // namespace convt2d::cuda
