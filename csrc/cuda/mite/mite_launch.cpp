// Problem + Plan + Args → Params → the kernel; of grad_weight also the sum of its pieces, and the bias gradient if wanted.
#include "cuda/mite/mite_launch.h"

#include "cuda/grad_bias/grad_bias.h"
#include "cuda/mite/mite.h"
#include "cuda/mite/mite_plan.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda {
namespace mite {
namespace {

void launch(const Problem& problem, const Plan& plan, const Args& args) {
  if (problem.direction != Direction::grad_weight) {
    launch_gather(problem, plan.row, gather_params_of(problem, plan, args), args.stream);
    return;
  }
  const WeightParams params = weight_params_of(problem, plan, args);
  launch_weight(problem, plan.row, params, args.stream);
  if (params.partials) launch_weight_sum(problem, params.pieces, args, plan.detail[kEarly] != 0);
  if (problem.has_bias) launch_grad_bias(problem, args);
}

}  // namespace
}  // namespace mite

const Family mite_family = {"mite", mite::plan, mite::launch};

}  // namespace convt2d::cuda
