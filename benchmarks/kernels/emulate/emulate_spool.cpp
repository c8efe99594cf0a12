// spool on a CPU, all kernels of all slices: indices, rows of pixels that start anywhere, the order of the sums.
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
#include "cuda/visit_row.h"
#include "fibers.h"
#include "weight_trial.h"

namespace {

template <class T>
bool check(const Case& one, int most) {
  WeightTrial<T> trial(one);
  const Problem& p = trial.problem;
  std::string reason;
  const std::vector<Plan> all = spool::plans(p, invented_device("h200"), reason);
  return trial.passes(some_of(all, most), all.size(), reason, [&](const Plan& chosen) {
    Plan plan = chosen;
    plan.split = std::min(plan.split, 1 + int(emulate::random() % 3));
    int32_t& slices = plan.detail[spool::kSlicesAt];
    slices = std::min<int>(p.batch, slices + emulate::random() % 3);
    trial.begin(1);
    std::vector<uint64_t> workspace(plan.workspace_bytes / 8 + weight_bytes(p) / 4 + 64, ~0ull);
    Args args = trial.args;
    args.workspace = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(workspace.data()) + 255) &
                                             ~uintptr_t{255});
    auto shape = std::make_shared<hopper::WeightParams>(
        *static_cast<const hopper::WeightParams*>(plan.prepared.get()));
    shape->split = plan.split;
    shape->stages = std::min(shape->stages, 2 + int(emulate::random() % 3));
    plan.prepared = shape;
    spool::Params params;
    for (int slice = 0; slice < spool::slices_of(plan); ++slice) {
      params = spool::params_of(p, plan, args, slice);
      emulate::smem = spool::smem;
      emulate::run_grid(params.turn_blocks, spool::kTurnThreads, spool::kTurnBytes,
                        [&] { spool::convt2d_spool_turn_kernel(params.turn); });
      emulate::smem = hopper::smem;
      tensor_boxes.clear();
      const hopper::WeightMaps maps = hopper::weight_maps(params.weight, params.x, params.y);
      const auto tile = hopper::kWeightTiles[plan.row];
      visit_row<hopper::kWeightTileCount>(plan.row, [&](auto row) {
        emulate::run_grid(params.weight_blocks, hopper::weight_threads(tile),
                          hopper::weight_shared_bytes(params.weight, tile), [&] {
                            hopper::convt2d_hopper_grad_weight_kernel<T, row>(params.weight, maps);
                          });
      });
    }
    emulate::smem = spool::smem;
    emulate::run_grid(
        params.sum_blocks, spool::kSumThreads,
        params.rounded ? spool::return_bytes(params.sum) : spool::sum_bytes(params.sum), [&] {
          if (params.rounded)
            spool::convt2d_spool_return_kernel(params.sum);
          else
            spool::convt2d_spool_sum_kernel<T>(params.sum);
        });
    return 0;
  });
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 5) return std::printf("see the head of %s\n", __FILE__), 2;
  emulate::random.seed(std::atoi(arguments[3]));
  const std::string type = arguments[2];
  const int plans = std::atoi(arguments[4]);
  return check_cases(arguments[1], Layout::nchw, count > 5 ? arguments[5] : "", [&](Case one) {
    return type == "bf16" ? check<__nv_bfloat16>(one, plans) : check<__half>(one, plans);
  });
}
