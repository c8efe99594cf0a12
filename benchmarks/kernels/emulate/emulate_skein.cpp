// skein on a CPU, to the bit, in random schedules.
//
//   emulate_skein CASES TYPE SEED PLANS [NAME]     TYPE: fp16, bf16, tf32
//
// As emulate_weight.cpp does for igemm: PLANS plans of each case at random, on integers, and again with an infinity or a
// NaN in places.
#include <string>

namespace convt2d::cuda::skein {
alignas(1024) unsigned char smem[232 * 1024];  // the kernel declares it extern
}

#include "cuda/cuda_families.h"
#include "cuda/skein/skein_kernel.cuh"
#include "cuda/skein/skein_plan.h"
#include "cuda/visit_row.h"
#include "fibers.h"
#include "weight_trial.h"

namespace {

template <class M>
bool check(Case one, int most) {
  using T = typename M::Element;
  if (emulate::random() % 4 == 0) one.problem.w_layout = Layout::nhwc;
  WeightTrial<T> trial(one, Precision::tf32);
  const Problem& p = trial.problem;
  std::string reason;
  const std::vector<Plan> all = skein::plans(p, invented_device("h200"), reason);
  return trial.passes(some_of(all, most), all.size(), reason, [&](Plan plan) {
    if (emulate::random() % 2) plan.split = std::min(plan.split, 1 + int(emulate::random() % 3));
    trial.begin(plan.split);
    trial.args.workspace = trial.partials.data();
    const skein::Params params = skein::params_of(p, plan, trial.args);
    tensor_boxes.clear();
    const skein::Maps maps = skein::maps_of(p, params);
    visit_row<skein::kTileCount>(plan.row, [&](auto index) {
      constexpr int kRow = decltype(index)::value;
      emulate::run_grid(
          skein::clusters_of(params), skein::kThreads,
          skein::shared_bytes(params, skein::kTiles[kRow], sizeof(T)),
          [&] { skein::convt2d_skein_grad_weight_kernel<M, kRow>(params, maps); }, params.ranks);
    });
    return params.partials ? plan.split : 0;
  });
}

}  // namespace

int main(int count, char** arguments) {
  emulate::smem = skein::smem;
  return check_typed(count, arguments, __FILE__,
                     [](const std::string& type, const Case& one, int plans) {
                       return type == "fp16"   ? check<MmaF16>(one, plans)
                              : type == "bf16" ? check<MmaBF16>(one, plans)
                                               : check<MmaTF32>(one, plans);
                     });
}
