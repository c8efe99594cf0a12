// Problem + Plan + Args → Params → the kernel.
#include "cuda/strand/strand_launch.h"

#include "cuda/strand/strand.h"
#include "cuda/strand/strand_plan.h"

namespace convt2d::cuda {
namespace strand {
namespace {

void launch(const Problem& problem, const Plan& plan, const Args& args) {
  if (plan.row >= kTileCount) {
    const WindowParams params = window_params_of(problem, plan, args);
    const auto run = problem.dtype == DType::f16            ? launch_windows_f16
                     : problem.dtype == DType::bf16         ? launch_windows_bf16
                     : problem.precision == Precision::tf32 ? launch_windows_tf32
                                                            : launch_windows_f32x3;
    run(plan.row - kTileCount, params, map_of_windows(problem, params),
        map_of_window_weights(problem, params), args.stream);
    return;
  }
  const Params params = params_of(problem, plan, args);
  const auto run = problem.dtype == DType::f16            ? launch_f16
                   : problem.dtype == DType::bf16         ? launch_bf16
                   : problem.precision == Precision::tf32 ? launch_tf32
                                                          : launch_f32x3;
  run(plan.row, params, args.stream);
}

}  // namespace
}  // namespace strand

const Family strand_family = {"strand", strand::plan, strand::launch};

}  // namespace convt2d::cuda
