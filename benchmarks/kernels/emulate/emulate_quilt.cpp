// quilt on a CPU, to the bit, in random schedules.
//
//   emulate_quilt CASES TYPE SEED PLANS [NAME]     TYPE: fp16, bf16, tf32, fp32
//
// As emulate_comb.cpp does for comb: PLANS plans of each case at random, on integers, and again with an infinity or a
// NaN in places. NCHW is all there is.
#include <cstdlib>
#include <string>

namespace convt2d::cuda::quilt {
alignas(1024) unsigned char smem[232 * 1024];  // the kernel declares it extern
}

#include "cuda/cuda_families.h"
#include "cuda/quilt/quilt_kernel.cuh"
#include "cuda/quilt/quilt_plan.h"
#include "cuda/visit_row.h"
#include "fibers.h"
#include "weight_trial.h"

namespace {

template <class M, int FIRST, int END>
bool check(const Case& one, Precision precision, int most) {
  using T = typename M::Element;
  WeightTrial<T> trial(one, precision);
  const Problem& p = trial.problem;
  std::string reason;
  const std::vector<Plan> all = quilt::plans(p, invented_device("h200"), reason);
  return trial.passes(some_of(all, most), all.size(), reason, [&](Plan plan) {
    plan.split = std::min(plan.split, 1 + int(emulate::random() % 3));
    plan.detail[0] = std::min(plan.detail[0], 2 + int(emulate::random() % 3));
    trial.begin(plan.split);
    trial.args.workspace = trial.partials.data();
    const quilt::Params params = quilt::params_of(p, plan, trial.args);
    const quilt::Maps maps = quilt::maps_of(p, plan, params);
    visit_row<END - FIRST>(plan.row - FIRST, [&](auto row) {
      emulate::run_grid(quilt::blocks_of(params), quilt::kThreads,
                        quilt::shared_bytes(params, quilt::kTiles[plan.row]), [&] {
                          quilt::convt2d_quilt_grad_weight_kernel<M, FIRST + row>(params, maps);
                        });
    });
    if (params.partials) trial.order_by_tap(plan.split);
    return params.partials ? plan.split : 0;
  });
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 5) return std::printf("see the head of %s\n", __FILE__), 2;
  emulate::smem = quilt::smem;
  const std::string type = arguments[2];
  emulate::random.seed(std::atoi(arguments[3]));
  const int plans = std::atoi(arguments[4]);
  return check_cases(arguments[1], Layout::nchw, count > 5 ? arguments[5] : "", [&](Case one) {
    using quilt::kStrictTileCount, quilt::kTileCount;
    return type == "fp16"   ? check<MmaF16, 0, kTileCount>(one, Precision::tf32, plans)
           : type == "bf16" ? check<MmaBF16, 0, kTileCount>(one, Precision::tf32, plans)
           : type == "tf32" ? check<MmaTF32, 0, kTileCount>(one, Precision::tf32, plans)
                            : check<MmaF32x3, kTileCount, kTileCount + kStrictTileCount>(
                                  one, Precision::ieee, plans);
  });
}
