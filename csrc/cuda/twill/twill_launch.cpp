// Problem + Plan + Args → Params → the kernel.
#include "cuda/twill/twill_launch.h"

#include "cuda/twill/twill.h"
#include "cuda/twill/twill_plan.h"

namespace convt2d::cuda {
namespace twill {
namespace {

void launch(const Problem& problem, const Plan& plan, const Args& args) {
  const Params params = params_of(problem, plan, args);
  const auto run = problem.dtype == DType::f16 ? launch_f16 : launch_bf16;
  run(plan.row, params, maps_of(problem, params, args), args.stream);
}

}  // namespace
}  // namespace twill

const Family twill_family = {"twill", twill::plan, twill::launch};

}  // namespace convt2d::cuda
