// Problem + Plan + Args → GatherParams → the kernel.
#include "cuda/loom/loom_launch.h"

#include "cuda/loom/loom.h"

namespace convt2d::cuda {
namespace loom {
namespace {

void launch(const Problem& problem, const Plan& plan, const Args& args) {
  const GatherParams params = params_of(problem, plan, args);
  Launch* const run = problem.dtype == DType::f16    ? launch_f16
                      : problem.dtype == DType::bf16 ? launch_bf16
                      : kTiles[plan.row].strict      ? launch_strict
                                                     : launch_tf32;
  run(plan.row, params, maps_of(params), args.stream);
}

}  // namespace
}  // namespace loom

const Family loom_family = {"loom", loom::plan, loom::launch};

}  // namespace convt2d::cuda
