// Problem + Plan + Args → Params → three kernels, the bias gradient if wanted.
#include "cuda/spool/spool_launch.h"

#include "cuda/grad_bias/grad_bias.h"
#include "cuda/hopper/hopper_weight_launch.h"
#include "cuda/hopper/hopper_weight_shape.h"
#include "cuda/spool/spool.h"

namespace convt2d::cuda {
namespace spool {
namespace {

void launch(const Problem& problem, const Plan& plan, const Args& args) {
  const Params params = params_of(problem, plan, args);
  const hopper::WeightMaps maps = hopper::weight_maps(params.weight, params.x, params.y);
  if (params.reel.slices > 1) {
    launch_reel(problem.dtype, plan.row, params, maps, args.stream);
  } else {
    launch_turn(params, args.stream);
    hopper::launch_weight(problem.dtype, plan.row, params.weight, maps, params.weight_blocks,
                          args.stream, true);
  }
  launch_sum(problem.dtype, params, args.stream);
  if (problem.has_bias) launch_grad_bias(problem, args);
}

}  // namespace
}  // namespace spool

const Family spool_family = {"spool", spool::plan, spool::launch};

}  // namespace convt2d::cuda
