// Problem + Plan + Args → Params → the kernel.
#include "cuda/scroll/scroll_launch.h"

#include "cuda/of_type.h"
#include "cuda/scroll/scroll.h"
#include "cuda/scroll/scroll_plan.h"
#include "cuda/scroll/scroll_planes_plan.h"

namespace convt2d::cuda {
namespace scroll {
namespace {

void launch(const Problem& problem, const Plan& plan, const Args& args) {
  if (kTiles[plan.row].phases > 0) {
    const PlaneParams params = plane_params_of(problem, plan, args);
    const auto run = of_type(problem, launch_planes_f16, launch_planes_bf16, launch_planes_tf32);
    return run(plan.row, blocks_of(params), params, args.stream);
  }
  const Params params = params_of(problem, plan, args);
  const auto run = of_type(problem, launch_f16, launch_bf16, launch_tf32);
  run(plan.row, blocks_of(params), params, map_of(params), args.stream);
}

}  // namespace
}  // namespace scroll

const Family scroll_family = {"scroll", scroll::plan, scroll::launch};

}  // namespace convt2d::cuda
