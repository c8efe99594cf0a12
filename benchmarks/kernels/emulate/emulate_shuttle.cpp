// shuttle on a CPU, to the bit, in random schedules.
//
//   emulate_shuttle CASES TYPE SEED PLANS [NAME]     TYPE: fp16 or bf16
//
// As emulate_comb.cpp does for comb: PLANS plans of each case at random, on integers, and again with an infinity or a
// NaN in places.
#include <cstdlib>
#include <string>

namespace convt2d::cuda::shuttle {
alignas(1024) unsigned char smem[232 * 1024];  // the kernel declares it extern
}

#include "cuda/cuda_families.h"
#include "cuda/shuttle/shuttle_kernel.cuh"
#include "cuda/shuttle/shuttle_plan.h"
#include "cuda/visit_row.h"
#include "fibers.h"
#include "weight_trial.h"

namespace {

template <class T>
bool check(const Case& one, int most) {
  WeightTrial<T> trial(one);
  const Problem& p = trial.problem;
  std::string reason;
  const std::vector<Plan> all = shuttle::plans(p, invented_device("h200"), reason);
  return trial.passes(some_of(all, most), all.size(), reason, [&](Plan plan) {
    if (emulate::random() % 2) plan.split = std::min(plan.split, 1 + int(emulate::random() % 3));
    trial.begin(plan.split);
    trial.args.workspace = trial.partials.data();
    tensor_boxes.clear();
    const shuttle::Params params = shuttle::params_of(p, plan, trial.args);
    const shuttle::Maps maps = shuttle::maps_of(params);
    visit_row<shuttle::kTileCount>(plan.row, [&](auto index) {
      constexpr int kRow = decltype(index)::value;
      constexpr shuttle::Tile tile = shuttle::kTiles[kRow];
      emulate::run_grid(
          shuttle::blocks_of(params), shuttle::threads(tile), shuttle::shared_bytes(params, tile),
          [&] { shuttle::convt2d_shuttle_grad_weight_kernel<T, kRow>(params, maps); });
    });
    return params.partials ? plan.split : 0;
  });
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 5) return std::printf("see the head of %s\n", __FILE__), 2;
  emulate::smem = shuttle::smem;
  emulate::random.seed(std::atoi(arguments[3]));
  const int plans = std::atoi(arguments[4]);
  return check_cases(arguments[1], Layout::nchw, count > 5 ? arguments[5] : "", [&](Case one) {
    if (emulate::random() % 4 == 0) one.problem.w_layout = Layout::nhwc;
    return std::string(arguments[2]) == "bf16" ? check<__nv_bfloat16>(one, plans)
                                               : check<__half>(one, plans);
  });
}
