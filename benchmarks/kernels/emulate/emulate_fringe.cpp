// fringe on a CPU, to the bit, in random schedules.
//
//   emulate_fringe CASES TYPE SEED PLANS [NAME]     TYPE: fp16, bf16, tf32
//
// As emulate_comb.cpp does for comb: PLANS plans of each case at random, on integers, and again with an infinity or a
// NaN in places. NCHW is all there is.
#include <string>

namespace convt2d::cuda::fringe {
alignas(1024) unsigned char smem[232 * 1024];  // the kernel declares it extern
}

#include "cuda/cuda_families.h"
#include "cuda/fringe/fringe_kernel.cuh"
#include "cuda/fringe/fringe_plan.h"
#include "cuda/visit_row.h"
#include "fibers.h"
#include "weight_trial.h"

namespace {

template <class M>
bool check(const Case& one, int most) {
  using T = typename M::Element;
  WeightTrial<T> trial(one, Precision::tf32);
  const Problem& p = trial.problem;
  std::string reason;
  const std::vector<Plan> all = fringe::plans(p, invented_device("h200"), reason);
  return trial.passes(some_of(all, most), all.size(), reason, [&](Plan plan) {
    plan.split = std::min(plan.split, 1 + int(emulate::random() % 3));
    plan.detail[3] = std::min(plan.detail[3], 2 + int(emulate::random() % 2) * 2);
    trial.begin(plan.split);
    trial.args.workspace = trial.partials.data();
    const fringe::Params params = fringe::params_of(p, plan, trial.args);
    const fringe::Maps maps = fringe::maps_of(p, params);
    visit_row<fringe::kTileCount>(plan.row, [&](auto row) {
      emulate::run_grid(fringe::blocks_of(params), fringe::kThreads, params.shared_bytes,
                        [&] { fringe::convt2d_fringe_grad_weight_kernel<M, row>(params, maps); });
    });
    if (params.partials) trial.order_by_tap(plan.split);
    return params.partials ? plan.split : 0;
  });
}

}  // namespace

int main(int count, char** arguments) {
  emulate::smem = fringe::smem;
  return check_typed(count, arguments, __FILE__,
                     [](const std::string& type, const Case& one, int plans) {
                       return type == "fp16"   ? check<MmaF16>(one, plans)
                              : type == "bf16" ? check<MmaBF16>(one, plans)
                                               : check<MmaTF32>(one, plans);
                     });
}
