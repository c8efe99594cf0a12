// Problem + Plan + Args → GatherParams → the launcher of the dtype.
#include "cuda/hopper/hopper_launch.h"

#include "cuda/gather_params.h"
#include "cuda/hopper/hopper.h"
#include "cuda/hopper/hopper_maps.h"
#include "cuda/hopper/hopper_plan.h"

namespace convt2d::cuda {
namespace hopper {
namespace {

void launch(const Problem& problem, const Plan& plan, const Args& args) {
  GatherParams params;
  gather_shape(problem, choice_of(plan), params);
  params.walkers = walkers_of(plan);
  set_operands(problem, args, params);
  const auto run = problem.dtype == DType::f16    ? launch_gather_f16
                   : problem.dtype == DType::bf16 ? launch_gather_bf16
                                                  : launch_gather_tf32;
  const TensorMaps maps = maps_of(params, kTiles[plan.row]);
  if (kTiles[plan.row].turned) {
    launch_gather_turned(problem.dtype, plan.row, params, maps, args.stream);
  } else if (kTiles[plan.row].copied) {
    launch_gather_copied(problem.dtype, plan.row, params, maps, args.stream);
  } else {
    run(plan.row, params, maps, args.stream);
  }
}

}  // namespace
}  // namespace hopper

const Family hopper_family = {"hopper", hopper::plan, hopper::launch};

}  // namespace convt2d::cuda
