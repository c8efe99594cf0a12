// Problem + Plan + Args → Params → the kernel, the sum of its pieces, the bias gradient if wanted.
#include "cuda/weft/weft_launch.h"

#include "cuda/direct/direct.h"
#include "cuda/weft/weft.h"
#include "cuda/weft/weft_plan.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda {
namespace weft {
namespace {

void launch(const Problem& problem, const Plan& plan, const Args& args) {
  const Params params = params_of(problem, plan, args);
  const auto run = problem.dtype == DType::f16 ? launch_f16 : launch_bf16;
  run(plan.row, params, maps_of(params, args), blocks_of(params), args.stream);
  if (params.weight.partials) launch_weight_sum(problem, params.weight.split, args, true);
  if (problem.has_bias) launch_grad_bias(problem, args);
}

}  // namespace
}  // namespace weft

const Family weft_family = {"weft", weft::plan, weft::launch};

}  // namespace convt2d::cuda
