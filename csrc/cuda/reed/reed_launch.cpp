// Problem + Plan + Args → Params → the kernel.
#include "cuda/reed/reed_launch.h"

#include "cuda/of_type.h"
#include "cuda/reed/reed.h"
#include "cuda/reed/reed_broad_plan.h"
#include "cuda/reed/reed_held_plan.h"
#include "cuda/reed/reed_lapped_plan.h"
#include "cuda/reed/reed_plan.h"

namespace convt2d::cuda {
namespace reed {
namespace {

void launch(const Problem& problem, const Plan& plan, const Args& args) {
  if (plan.row == kLappedRow) {
    const Lapped lapped = lapped_of(problem, args);
    launch_lapped(problem.dtype, problem.y_layout == Layout::nhwc, lapped, blocks_of(lapped),
                  map_of_lapped(problem, args), map_of_lapped_weights(problem, args), args.stream);
    return;
  }
  if (plan.row == kBroadRow) {
    const Held held = held_of(problem, plan, args);
    launch_broad(problem.dtype, held.tiles * 16 / kBroadPositions, held, blocks_of(held),
                 broad_bytes(held), map_of_broad_weights(problem, held), args.stream);
    return;
  }
  if (plan.row == kWideRow) {
    const Held held = held_of(problem, plan, args);
    launch_wide(held, blocks_of(held), wide_bytes(held), args.stream);
    return;
  }
  if (plan.row == kHeldRow) {
    const auto run =
        of_type(problem, launch_held_f16, launch_held_bf16, launch_held_tf32, launch_held_f32x3);
    const Held held = held_of(problem, plan, args);
    run(held, blocks_of(held), shared_bytes(held, static_cast<int>(element_size(problem.dtype))),
        args.stream);
    return;
  }
  const auto run = of_type(problem, launch_f16, launch_bf16, launch_tf32, launch_f32x3);
  run(plan.row, params_of(problem, plan, args), args.stream);
}

}  // namespace
}  // namespace reed

const Family reed_family = {"reed", reed::plan, reed::launch};

}  // namespace convt2d::cuda
