// Problem + Plan + Args → Params → the kernel.
#include "cuda/narrow/narrow_launch.h"

#include "cuda/narrow/narrow.h"
#include "cuda/narrow/narrow_plan.h"
#include "cuda/narrow/narrow_ribbon.h"

namespace convt2d::cuda {
namespace narrow {
namespace {

void launch(const Problem& problem, const Plan& plan, const Args& args) {
  if (plan.row >= kTileCount) {
    const RibbonParams params = ribbon_params_of(problem, plan, args);
    launch_ribbon(problem.dtype, plan.row - kTileCount, params, ribbon_map_of(params), args.stream);
    return;
  }
  const Params params = params_of(problem, plan, args);
  const auto run = params.number_bytes == 4 ? launch_words : launch_halves;
  run(problem.dtype, plan.row, params, map_of(params, kTiles[plan.row]), args.stream);
}

}  // namespace
}  // namespace narrow

const Family narrow_family = {"narrow", narrow::plan, narrow::launch};

}  // namespace convt2d::cuda
