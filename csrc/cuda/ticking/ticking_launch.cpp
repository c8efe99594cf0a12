// Problem + Plan + Args → Params → the kernel.
#include "cuda/ticking/ticking_launch.h"

#include "cuda/ticking/ticking.h"
#include "cuda/ticking/ticking_plan.h"

namespace convt2d::cuda {
namespace ticking {
namespace {

void launch(const Problem& problem, const Plan& plan, const Args& args) {
  launch_kernel(problem, plan.row, params_of(problem, plan, args), args.stream);
}

}  // namespace
}  // namespace ticking

const Family ticking_family = {"ticking", ticking::plan, ticking::launch};

}  // namespace convt2d::cuda
