// heddle on a CPU, to the bit, in random schedules.
//
//   emulate_heddle CASES TYPE SEED PLANS [NAME]     TYPE: fp16, bf16, tf32, fp32
//
// As emulate_weight.cpp does for igemm: PLANS plans of each case at random, on integers, and again with an infinity or a
// NaN in places. NCHW is all there is.
#include <cstdlib>
#include <string>

namespace convt2d::cuda::heddle {
alignas(1024) unsigned char smem[232 * 1024];  // the kernel declares it extern
}

#include "cuda/cuda_families.h"
#include "cuda/heddle/heddle_kernel.cuh"
#include "cuda/heddle/heddle_plan.h"
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
  const std::vector<Plan> all = heddle::plans(p, invented_device("h200"), reason);
  return trial.passes(some_of(all, most), all.size(), reason, [&](Plan plan) {
    plan.detail[4] = std::min(plan.detail[4], 2 + int(emulate::random() % 3));  // stages
    if (emulate::random() % 2) plan.split = std::min(plan.split, 1 + int(emulate::random() % 3));
    trial.begin(plan.split);
    trial.args.workspace = trial.partials.data();
    const heddle::Params params = heddle::params_of(p, plan, trial.args);
    visit_row<END - FIRST>(plan.row - FIRST, [&](auto index) {
      constexpr int kRow = FIRST + decltype(index)::value;
      emulate::run_grid(heddle::blocks_of(params), heddle::threads(heddle::kTiles[kRow]),
                        heddle::shared_bytes(params, heddle::kTiles[kRow]),
                        [&] { heddle::convt2d_heddle_grad_weight_kernel<M, kRow>(params); });
    });
    return params.partials ? plan.split : 0;
  });
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 5) return std::printf("see the head of %s\n", __FILE__), 2;
  emulate::smem = heddle::smem;
  const std::string type = arguments[2];
  emulate::random.seed(std::atoi(arguments[3]));
  const int plans = std::atoi(arguments[4]);
  return check_cases(arguments[1], Layout::nchw, count > 5 ? arguments[5] : "", [&](Case one) {
    using heddle::kFirstStrict, heddle::kTileCount;
    if (emulate::random() % 4 == 0) one.problem.w_layout = Layout::nhwc;
    return type == "fp16"   ? check<MmaF16, 0, kFirstStrict>(one, Precision::tf32, plans)
           : type == "bf16" ? check<MmaBF16, 0, kFirstStrict>(one, Precision::tf32, plans)
           : type == "tf32"
               ? check<MmaTF32, 0, kFirstStrict>(one, Precision::tf32, plans)
               : check<MmaF32x3, kFirstStrict, kTileCount>(one, Precision::ieee, plans);
  });
}
