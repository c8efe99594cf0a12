// Problem + Plan + Args → Params → the kernel.
#include "cuda/tuft/tuft_launch.h"

#include "cuda/of_type.h"
#include "cuda/tuft/tuft.h"
#include "cuda/tuft/tuft_plan.h"

namespace convt2d::cuda {
namespace tuft {
namespace {

void launch(const Problem& problem, const Plan& plan, const Args& args) {
  const Params params = params_of(problem, plan, args);
  const auto run = of_type(problem, launch_f16, launch_bf16, launch_tf32);
  run(plan.row, params, maps_of(problem, params, args), blocks_of(params), args.stream);
}

}  // namespace
}  // namespace tuft

const Family tuft_family = {"tuft", tuft::plan, tuft::launch};

}  // namespace convt2d::cuda
