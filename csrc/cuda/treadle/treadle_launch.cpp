// Problem + Plan + Args → Params → the kernel, the sum of its pieces, the bias gradient if wanted.
#include "cuda/treadle/treadle_launch.h"

#include "cuda/treadle/treadle.h"
#include "cuda/treadle/treadle_plan.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda {
namespace treadle {
namespace {

void launch(const Problem& problem, const Plan& plan, const Args& args) {
  const Params params = params_of(problem, plan, args);
  const Tile tile = kTiles[plan.row];
  if (tile.strict) {
    launch_strict(plan.row, false, params, CUtensorMap{}, args.stream);
  } else {
    (tile.halves ? (problem.dtype == DType::f16 ? launch_f16 : launch_bf16) : launch_tf32)(
        plan.row, channels_last(problem), params, map_of(problem, params), args.stream);
  }
  finish_grad_weight(problem, params, args);
}

}  // namespace
}  // namespace treadle

const Family treadle_family = {"treadle", treadle::plan, treadle::launch};

}  // namespace convt2d::cuda
