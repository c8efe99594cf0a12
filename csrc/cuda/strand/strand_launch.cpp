// Problem + Plan + Args → Params → the kernel.
#include "cuda/strand/strand_launch.h"

#include "cuda/strand/strand.h"
#include "cuda/strand/strand_plan.h"
#include "cuda/strict_sums.h"

namespace convt2d::cuda {
namespace strand {
namespace {

void launch(const Problem& problem, const Plan& plan, const Args& args) {
  const auto of_mode = [&](auto f16, auto bf16, auto tf32, auto f32x3) {
    return problem.dtype == DType::f16            ? f16
           : problem.dtype == DType::bf16         ? bf16
           : problem.precision == Precision::tf32 ? tf32
                                                  : f32x3;
  };
  if (plan.row == kSpanRow) {
    const SpanParams params = span_params_of(problem, plan, args);
    launch_spans(problem.dtype, span_pixels(problem), params, span_tiles_of(params),
                 map_of_spans(problem, params), map_of_span_weights(problem, params), args.stream);
    return;
  }
  if (const int row = dense_row_of(plan); row >= 0) {
    const DenseParams params = dense_params_of(problem, plan, args);
    const int columns = dense_tile(row, is_strict(problem)).columns;
    const auto run = is_strict(problem) ? launch_dense_f32x3 : launch_dense_tf32;
    run(row, params, map_of_dense(problem, params), map_of_dense_weights(problem, params, columns),
        args.stream);
    return;
  }
  if (plan.row >= kTileCount) {
    const WindowParams params = window_params_of(problem, plan, args);
    const auto run =
        of_mode(launch_windows_f16, launch_windows_bf16, launch_windows_tf32, launch_windows_f32x3);
    run(plan.row - kTileCount, params, map_of_windows(problem, params),
        map_of_window_weights(problem, params), args.stream);
    return;
  }
  const Params params = params_of(problem, plan, args);
  const auto run = of_mode(launch_f16, launch_bf16, launch_tf32, launch_f32x3);
  run(plan.row, params, args.stream);
}

}  // namespace
}  // namespace strand

const Family strand_family = {"strand", strand::plan, strand::launch};

}  // namespace convt2d::cuda
