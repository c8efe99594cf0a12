// Problem + Plan + Args → Params → the kernel.
#include "cuda/pleat/pleat_launch.h"

#include "cuda/pleat/pleat.h"
#include "cuda/pleat/pleat_plan.h"

namespace convt2d::cuda {
namespace pleat {
namespace {

void launch(const Problem& problem, const Plan& plan, const Args& args) {
  const Params params = params_of(problem, plan, args);
  const auto run = problem.dtype == DType::f16 ? launch_f16 : launch_bf16;
  run(plan.row, params, maps_of(problem, params, args), args.stream);
}

}  // namespace
}  // namespace pleat

const Family pleat_family = {"pleat", pleat::plan, pleat::launch};

}  // namespace convt2d::cuda
