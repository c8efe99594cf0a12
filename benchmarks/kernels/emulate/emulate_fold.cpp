// The fold kernel on a CPU, to the bit, in random schedules.
//
//   emulate_fold CASES TYPE SEED PLANS [NAME]     TYPE: fp16, bf16, tf32, fp32
//
// As emulate.cpp does for hopper: PLANS plans of each case at random, on integers.
#include <cstdlib>
#include <string>

namespace convt2d::cuda::fold {
alignas(1024) unsigned char smem[232 * 1024];  // the kernel declares it extern
}

#include "cuda/cuda_families.h"
#include "cuda/fold/fold_crossed.cuh"
#include "cuda/fold/fold_flat_halves.cuh"
#include "cuda/fold/fold_kernel.cuh"
#include "cuda/fold/fold_plan.h"
#include "cuda/visit_row.h"
#include "fibers.h"
#include "gather_trial.h"

namespace {

using namespace convt2d;
using namespace convt2d::cuda;

template <class T>
bool check(const Case& one, Precision precision, int most) {
  GatherTrial<T> trial(one, Direction::fwd, precision);
  std::string reason;
  std::vector<Plan> plans = fold::plans(trial.problem, invented_device("h200"), reason);
  for (Plan& plan : plans) {
    int32_t &stages = plan.detail[2], &walkers = plan.detail[5];
    stages = std::min(stages, 2 + int(emulate::random() % 3));
    walkers = std::min(walkers, 1 + int(emulate::random() % 3));
  }
  return trial.passes(trial.some(plans, most, reason), [&](const Plan& plan) {
    const fold::Params params = fold::params_of(trial.problem, plan, trial.args);
    const auto maps = fold::maps_of(params, fold::kTiles[plan.row], trial.args);
    visit_row<fold::kTileCount>(plan.row, [&](auto row) {
      constexpr fold::Tile tile = fold::kTiles[row];
      if constexpr (fold::has_tile(row, sizeof(T)))
        emulate::run_grid(fold::blocks_of(params), fold::threads(tile), params.shared_bytes, [&] {
          if constexpr (tile.crossed)
            fold::convt2d_fold_crossed_kernel<row>(params, maps);
          else if constexpr (tile.flat)
            fold::convt2d_fold_flat_kernel<T, row>(params, maps);
          else
            fold::convt2d_fold_kernel<T, row>(params, maps);
        });
    });
  });
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 5) return std::printf("see the head of %s\n", __FILE__), 2;
  emulate::smem = fold::smem;
  emulate::random.seed(std::atoi(arguments[3]));
  const std::string type = arguments[2];
  const int plans = std::atoi(arguments[4]);
  return check_cases(arguments[1], Layout::nchw, count > 5 ? arguments[5] : "", [&](Case one) {
    if (emulate::random() % 4 == 0) one.problem.w_layout = Layout::nhwc;
    if (type == "fp32") return check<float>(one, Precision::ieee, plans);
    if (type == "tf32") return check<float>(one, Precision::tf32, plans);
    return type == "fp16" ? check<__half>(one, Precision::ieee, plans)
                          : check<__nv_bfloat16>(one, Precision::ieee, plans);
  });
}
