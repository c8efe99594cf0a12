// Problem + Plan + Args → Params → the kernel, the sum of its pieces, the bias gradient if wanted.
#include "cuda/shuttle/shuttle_launch.h"

#include "cuda/shuttle/shuttle.h"
#include "cuda/shuttle/shuttle_plan.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda {
namespace shuttle {
namespace {

void launch(const Problem& problem, const Plan& plan, const Args& args) {
  const Params params = params_of(problem, plan, args);
  (problem.dtype == DType::f16 ? launch_f16 : launch_bf16)(plan.row, params, maps_of(params),
                                                           args.stream);
  finish_grad_weight(problem, params, args);
}

}  // namespace
}  // namespace shuttle

const Family shuttle_family = {"shuttle", shuttle::plan, shuttle::launch};

}  // namespace convt2d::cuda
