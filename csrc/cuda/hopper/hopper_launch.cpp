// Problem + Plan + Args → GatherParams → the launcher of the row.
#include "cuda/hopper/hopper_launch.h"

#include "cuda/gather_params.h"
#include "cuda/hopper/hopper.h"
#include "cuda/hopper/hopper_maps.h"
#include "cuda/hopper/hopper_plan.h"
#include "cuda/hopper/hopper_weight_launch.h"

namespace convt2d::cuda {
namespace hopper {
namespace {

Launch* launcher_of(DType dtype, TileRow tile) {
  if (tile.strict) return tile.fetched ? launch_gather_strict_fetched : launch_gather_strict;
  if (tile.turned) return launch_gather_turned;
  if (tile.fetched)
    return dtype == DType::f32 ? launch_gather_fetched_words : launch_gather_fetched;
  if (tile.weights_fetched) return launch_gather_weights;
  if (tile.copied) return launch_gather_copied;
  if (dtype == DType::f32) return launch_gather_tf32;
  if (tile.channel_rows) return launch_gather_channels;
  return dtype == DType::f16 ? launch_gather_f16 : launch_gather_bf16;
}

void launch(const Problem& problem, const Plan& plan, const Args& args) {
  if (problem.direction == Direction::grad_weight) return launch_grad_weight(problem, plan, args);
  GatherParams params;
  gather_shape(problem, choice_of(plan), params);
  set_walkers(plan, params);
  set_operands(problem, as_walked(problem, args), params);
  const TileRow tile = kTiles[plan.row];
  launcher_of(problem.dtype, tile)(problem.dtype, plan.row, params, maps_of(params, tile),
                                   args.stream);
}

}  // namespace
}  // namespace hopper

const Family hopper_family = {"hopper", hopper::plan, hopper::launch};

}  // namespace convt2d::cuda
