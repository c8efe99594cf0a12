// Problem + Plan + Args → Params → the kernel.
#include "cuda/gauze/gauze_launch.h"

#include "cuda/gauze/gauze.h"
#include "cuda/gauze/gauze_plan.h"
#include "cuda/of_type.h"

namespace convt2d::cuda {
namespace gauze {
namespace {

void launch(const Problem& problem, const Plan& plan, const Args& args) {
  const Params params = params_of(problem, plan, args);
  const auto run = of_type(problem, launch_f16, launch_bf16, launch_tf32);
  run(plan.row, params, maps_of(problem, params, args), args.stream);
}

}  // namespace
}  // namespace gauze

const Family gauze_family = {"gauze", gauze::plan, gauze::launch};

}  // namespace convt2d::cuda
