// Problem + Plan + Args → Params → the kernel.
#include "cuda/slide/slide_launch.h"

#include "cuda/slide/slide.h"
#include "cuda/slide/slide_plan.h"
#include "cuda/slide/slide_rows_plan.h"

namespace convt2d::cuda {
namespace slide {
namespace {

void launch(const Problem& problem, const Plan& plan, const Args& args) {
  if (plan.row >= kStridedRow) {
    const StridedParams params = strided_params_of(problem, plan, args);
    return launch_strided(problem.dtype, plan.row, params, map_of(params), blocks_of(params),
                          args.stream);
  }
  if (plan.row >= kTurnedRow) {
    const TurnedParams params = turned_params_of(problem, plan, args);
    return launch_turned(problem.dtype, plan.row, params, map_of(params), blocks_of(params),
                         args.stream);
  }
  const Params params = params_of(problem, plan, args);
  const auto run = problem.dtype == DType::f16 ? launch_f16 : launch_bf16;
  run(plan.row, params, map_of(params), blocks_of(params), args.stream);
}

}  // namespace
}  // namespace slide

const Family slide_family = {"slide", slide::plan, slide::launch};

}  // namespace convt2d::cuda
