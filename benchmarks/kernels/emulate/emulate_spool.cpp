// spool on a CPU: indices, rows of pixels that start anywhere, the order of the sums; a reel's blocks run together and wait for
// each other.
//
//   emulate_spool CASES TYPE SEED PLANS [NAME]     TYPE: fp16, bf16
//
// PLANS of each case at random run on integers, and again with an infinity or a NaN in places; the workspace and outputs
// hold NaN before.
#include <cstdio>
#include <string>

namespace convt2d::cuda::hopper {
alignas(1024) unsigned char smem[232 * 1024];  // kernels declare it extern
}
namespace convt2d::cuda::spool {
alignas(1024) unsigned char smem[232 * 1024];
}

#include "core/phases.h"
#include "cuda/cuda_families.h"
#include "cuda/hopper/hopper_weight.cuh"
#include "cuda/hopper/hopper_weight_plan.h"
#include "cuda/spool/spool_kernel.cuh"
#include "cuda/spool/spool_plan.h"
#include "cuda/spool/spool_reel.cuh"
#include "cuda/visit_row.h"
#include "fibers.h"
#include "weight_trial.h"

namespace {

constexpr int kMostBlocks = 24;  // together: a fiber a thread

template <class T>
void run(const spool::Params& params, int row) {
  emulate::smem = spool::smem;
  const bool reel = params.reel.slices > 1;
  if (reel)
    std::fill(params.reel.turned, params.reel.turned + 2 * params.reel.slices, 0);
  else
    emulate::run_grid(params.turn_blocks, spool::kTurnThreads, spool::kTurnBytes,
                      [&] { spool::convt2d_spool_turn_kernel(params.turn); });
  tensor_boxes.clear();
  const hopper::WeightMaps maps = hopper::weight_maps(params.weight, params.x, params.y);
  const auto tile = hopper::kWeightTiles[row];
  visit_row<hopper::kWeightTileCount>(row, [&](auto row) {
    if (reel) {
      const spool::ReelMaps reel_maps = spool::reel_maps_of(params.reel);
      return emulate::run_grid_together(
          int(params.weight_blocks), hopper::weight_threads(tile), params.reel_bytes, [&] {
            spool::convt2d_spool_reel_kernel<T, row>(params.weight, maps, params.reel, reel_maps);
          });
    }
    emulate::smem = hopper::smem;
    emulate::run_grid(params.weight_blocks, hopper::weight_threads(tile),
                      hopper::weight_shared_bytes(params.weight, tile), [&] {
                        hopper::convt2d_hopper_grad_weight_kernel<T, row>(params.weight, maps);
                      });
  });
  emulate::smem = spool::smem;
  emulate::run_grid(params.sum_blocks, spool::kSumThreads,
                    params.rounded ? spool::return_bytes(params.sum) : spool::sum_bytes(params.sum),
                    [&] {
                      if (params.rounded)
                        spool::convt2d_spool_return_kernel(params.sum);
                      else
                        spool::convt2d_spool_sum_kernel<T>(params.sum);
                    });
}

template <class T>
bool check(const Case& one, int most) {
  WeightTrial<T> trial(one);
  const Problem& p = trial.problem;
  std::string reason;
  std::vector<Plan> all = spool::plans(p, invented_device("h200"), reason);
  // Fewer pieces, so that blocks are few; reels of more slices than there are buffers.
  for (Plan& plan : all) {
    plan.split = std::min(plan.split, 1 + int(emulate::random() % 3));
    int32_t& images = plan.detail[spool::kImagesAt];
    if (images < p.batch && emulate::random() % 2) images = plan.detail[4];
    auto shape = std::make_shared<hopper::WeightParams>(
        *static_cast<const hopper::WeightParams*>(plan.prepared.get()));
    shape->split = plan.split;
    shape->stages = std::min(shape->stages, 2 + int(emulate::random() % 3));
    shape->batch = images;
    shape->tiles_n = int(ceil_div(images, shape->tile_n));
    plan.prepared = shape;
  }
  all.erase(std::remove_if(all.begin(), all.end(),
                           [&](const Plan& plan) {
                             const auto& shape =
                                 *static_cast<const hopper::WeightParams*>(plan.prepared.get());
                             return spool::slices_of(p, plan) > 1 &&
                                    hopper::weight_combinations(shape) * shape.split > kMostBlocks;
                           }),
            all.end());
  return trial.passes(some_of(all, most), all.size(), reason, [&](const Plan& plan) {
    trial.begin(1);
    // Pieces of one slice may take more than what was planned for.
    std::vector<uint64_t> workspace(plan.workspace_bytes / 8 + weight_bytes(p) / 2 + 4096, ~0ull);
    Args args = trial.args;
    args.workspace = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(workspace.data()) + 255) &
                                             ~uintptr_t{255});
    run<T>(spool::params_of(p, plan, args), plan.row);
    return 0;
  });
}

}  // namespace

int main(int count, char** arguments) {
  return check_halves(count, arguments, __FILE__, [](auto number, const Case& one, int plans) {
    return check<decltype(number)>(one, plans);
  });
}
