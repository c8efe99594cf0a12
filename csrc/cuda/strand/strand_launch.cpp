// Problem + Plan + Args → Params → the kernel.
#include "cuda/strand/strand_launch.h"

#include "cuda/strand/strand.h"
#include "cuda/strand/strand_plan.h"

namespace convt2d::cuda {
namespace strand {
namespace {

void launch(const Problem& problem, const Plan& plan, const Args& args) {
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
