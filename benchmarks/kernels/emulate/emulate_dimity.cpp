// dimity on a CPU, to the bit, in random schedules.
//
//   emulate_dimity CASES TYPE SEED PLANS [NAME]     TYPE: fp16, bf16, tf32, fp32
//
// As emulate_weight.cpp does for igemm: PLANS plans of each case at random, on integers, and again with an infinity or a
// NaN in places. NHWC=1: channels last.
#include <cstdlib>
#include <string>

namespace convt2d::cuda::dimity {
alignas(1024) unsigned char smem[232 * 1024];  // the kernel declares it extern
}

#include "cuda/cuda_families.h"
#include "cuda/dimity/dimity_kernel.cuh"
#include "cuda/dimity/dimity_plan.h"
#include "cuda/visit_row.h"
#include "fibers.h"
#include "weight_trial.h"

namespace {

template <class M>
bool check(Case one, Precision precision, int most) {
  using T = typename M::Element;
  if (emulate::random() % 4 == 0) one.problem.w_layout = Layout::nhwc;
  if (std::getenv("NHWC")) one.problem.x_layout = one.problem.y_layout = Layout::nhwc;
  WeightTrial<T> trial(one, precision);
  const Problem& p = trial.problem;
  std::string reason;
  const std::vector<Plan> all = dimity::plans(p, invented_device("h200"), reason);
  return trial.passes(some_of(all, most), all.size(), reason, [&](Plan plan) {
    plan.detail[6] = std::min(plan.detail[6], 2 + int(emulate::random() % 4));  // stages
    if (emulate::random() % 2) plan.split = std::min(plan.split, 1 + int(emulate::random() % 3));
    trial.begin(plan.split);
    trial.args.workspace = trial.partials.data();
    const dimity::Params params = dimity::params_of(p, plan, trial.args);
    tensor_boxes.clear();
    const dimity::Maps maps = dimity::maps_of(p, params);
    visit_row<dimity::kTileCount>(plan.row, [&](auto index) {
      constexpr int kRow = decltype(index)::value;
      emulate::run_grid(dimity::blocks_of(params), dimity::kThreads,
                        dimity::shared_bytes(params, dimity::kTiles[kRow]),
                        [&] { dimity::convt2d_dimity_grad_weight_kernel<M, kRow>(params, maps); });
    });
    return params.partials ? plan.split : 0;
  });
}

}  // namespace

int main(int count, char** arguments) {
  emulate::smem = dimity::smem;
  return check_typed(count, arguments, __FILE__,
                     [](const std::string& type, const Case& one, int plans) {
                       return type == "fp16"   ? check<MmaF16>(one, Precision::tf32, plans)
                              : type == "bf16" ? check<MmaBF16>(one, Precision::tf32, plans)
                              : type == "tf32" ? check<MmaTF32>(one, Precision::tf32, plans)
                                               : check<MmaF32x3>(one, Precision::ieee, plans);
                     });
}
