// Problem + Plan + Args → Params → the kernel.
#include "cuda/crimp/crimp_launch.h"

#include "cuda/crimp/crimp.h"
#include "cuda/crimp/crimp_plan.h"
#include "cuda/of_type.h"

namespace convt2d::cuda {
namespace crimp {
namespace {

void launch(const Problem& problem, const Plan& plan, const Args& args) {
  const Params params = params_of(problem, plan, args);
  const auto run = of_type(problem, launch_f16, launch_bf16, launch_tf32);
  run(plan.row, params, maps_of(problem, plan, params, args), args.stream);
}

}  // namespace
}  // namespace crimp

const Family crimp_family = {"crimp", crimp::plan, crimp::launch};

}  // namespace convt2d::cuda
