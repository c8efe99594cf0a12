// hank on a CPU, to the bit, in random schedules.
//
//   emulate_hank CASES TYPE SEED PLANS [NAME]     TYPE: fp16, bf16, tf32
//
// As emulate_dimity.cpp does, channels last: PLANS plans of each case at random, on integers, and again with an infinity or a
// NaN in places.
#include <string>

namespace convt2d::cuda::hank {
alignas(1024) unsigned char smem[232 * 1024];  // the kernel declares it extern
}

#include "cuda/cuda_families.h"
#include "cuda/hank/hank_kernel.cuh"
#include "cuda/hank/hank_plan.h"
#include "cuda/visit_row.h"
#include "fibers.h"
#include "weight_trial.h"

namespace {

template <class M>
bool check(Case one, int most) {
  using T = typename M::Element;
  one.problem.x_layout = one.problem.y_layout = Layout::nhwc;
  if (emulate::random() % 4 == 0) one.problem.w_layout = Layout::nhwc;
  WeightTrial<T> trial(one);
  const Problem& p = trial.problem;
  std::string reason;
  const std::vector<Plan> all = hank::plans(p, invented_device("h200"), reason);
  return trial.passes(some_of(all, most), all.size(), reason, [&](Plan plan) {
    plan.detail[2] = std::min(plan.detail[2], 2 + int(emulate::random() % 4));  // stages
    if (emulate::random() % 2) plan.split = std::min(plan.split, 1 + int(emulate::random() % 3));
    trial.begin(plan.split);
    trial.args.workspace = trial.partials.data();
    const hank::Params params = hank::params_of(p, plan, trial.args);
    tensor_boxes.clear();
    const hank::Maps maps = hank::maps_of(p, params);
    visit_row<hank::kTileCount>(plan.row, [&](auto index) {
      constexpr int kRow = decltype(index)::value;
      emulate::run_grid(hank::blocks_of(params), hank::kThreads,
                        hank::shared_bytes(params, hank::kTiles[kRow]),
                        [&] { hank::convt2d_hank_grad_weight_kernel<M, kRow>(params, maps); });
    });
    return params.partials ? plan.split : 0;
  });
}

}  // namespace

int main(int count, char** arguments) {
  emulate::smem = hank::smem;
  return check_typed(count, arguments, __FILE__,
                     [](const std::string& type, const Case& one, int plans) {
                       return type == "fp16"   ? check<MmaF16>(one, plans)
                              : type == "bf16" ? check<MmaBF16>(one, plans)
                                               : check<MmaTF32>(one, plans);
                     });
}
