// Problem + Plan + Args → Params → two kernels a slice and the sum, the bias gradient if wanted.
#include "cuda/spool/spool_launch.h"

#include "cuda/direct/direct.h"
#include "cuda/hopper/hopper_weight_launch.h"
#include "cuda/hopper/hopper_weight_shape.h"
#include "cuda/spool/spool.h"

namespace convt2d::cuda {
namespace spool {
namespace {

void launch(const Problem& problem, const Plan& plan, const Args& args) {
  Params params;
  for (int slice = 0; slice < slices_of(plan); ++slice) {
    params = params_of(problem, plan, args, slice);
    launch_turn(params, args.stream);
    hopper::launch_weight(problem.dtype, plan.row, params.weight,
                          hopper::weight_maps(params.weight, params.x, params.y),
                          params.weight_blocks, args.stream, true);
  }
  launch_sum(problem.dtype, params, args.stream);
  if (problem.has_bias) launch_grad_bias(problem, args);
}

}  // namespace
}  // namespace spool

const Family spool_family = {"spool", spool::plan, spool::launch};

}  // namespace convt2d::cuda
