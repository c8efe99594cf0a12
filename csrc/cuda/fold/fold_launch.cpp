// Problem + Plan + Args → Params → the kernel.
#include "cuda/fold/fold_launch.h"

#include "cuda/fold/fold.h"
#include "cuda/fold/fold_plan.h"

namespace convt2d::cuda {
namespace fold {
namespace {

void launch(const Problem& problem, const Plan& plan, const Args& args) {
  const Params params = params_of(problem, plan, args);
  const auto run = kTiles[plan.row].crossed   ? launch_crossed
                   : params.number_bytes == 4 ? launch_words
                   : kTiles[plan.row].flat    ? launch_flat
                   : kTiles[plan.row].shifted ? launch_shifted
                                              : launch_halves;
  run(problem.dtype, plan.row, params, maps_of(params, kTiles[plan.row], args), blocks_of(params),
      args.stream);
}

}  // namespace
}  // namespace fold

const Family fold_family = {"fold", fold::plan, fold::launch};

}  // namespace convt2d::cuda
