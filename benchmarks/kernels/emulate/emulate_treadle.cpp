// treadle on a CPU, to the bit, in random schedules.
//
//   emulate_treadle CASES TYPE LAYOUT SEED PLANS [NAME]     TYPE: tf32, or fp32, fp16, bf16 in nchw
//
// As emulate_comb.cpp does for comb: PLANS plans of each case at random, on integers, and again with an infinity or a
// NaN in places.
#include <cstdlib>
#include <string>

namespace convt2d::cuda::treadle {
alignas(1024) unsigned char smem[232 * 1024];  // the kernel declares it extern
}

#include "cuda/cuda_families.h"
#include "cuda/treadle/treadle_kernel.cuh"
#include "cuda/treadle/treadle_plan.h"
#include "cuda/visit_row.h"
#include "fibers.h"
#include "weight_trial.h"

namespace {

template <class M, int FIRST, int END, bool CHANNELS_LAST>
bool check(const Case& one, Precision precision, int most) {
  WeightTrial<typename M::Element> trial(one, precision);
  const Problem& p = trial.problem;
  std::string reason;
  const std::vector<Plan> all = treadle::plans(p, invented_device("h200"), reason);
  return trial.passes(some_of(all, most), all.size(), reason, [&](Plan plan) {
    if (emulate::random() % 2) plan.split = std::min(plan.split, 1 + int(emulate::random() % 3));
    trial.begin(plan.split);
    trial.args.workspace = trial.partials.data();
    tensor_boxes.clear();
    const treadle::Params params = treadle::params_of(p, plan, trial.args);
    const CUtensorMap map = M::kSplit ? CUtensorMap{} : treadle::map_of(p, params);
    visit_row<END - FIRST>(plan.row - FIRST, [&](auto index) {
      constexpr int kRow = FIRST + decltype(index)::value;
      emulate::run_grid(treadle::blocks_of(params), treadle::kThreads,
                        treadle::shared_bytes(treadle::kTiles[kRow], CHANNELS_LAST), [&] {
                          treadle::convt2d_treadle_grad_weight_kernel<M, kRow, CHANNELS_LAST>(
                              params, map);
                        });
    });
    return params.partials ? plan.split : 0;
  });
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 6) return std::printf("see the head of %s\n", __FILE__), 2;
  emulate::smem = treadle::smem;
  const Layout layout = std::string(arguments[3]) == "nhwc" ? Layout::nhwc : Layout::nchw;
  emulate::random.seed(std::atoi(arguments[4]));
  const int plans = std::atoi(arguments[5]);
  return check_cases(arguments[1], layout, count > 6 ? arguments[6] : "", [&](Case one) {
    if (emulate::random() % 4 == 0)
      one.problem.w_layout = layout == Layout::nhwc ? Layout::nchw : Layout::nhwc;
    using treadle::kFirstStrict, treadle::kFirstHalves, treadle::kTileCount;
    const std::string type = arguments[2];
    return type == "fp32"
               ? check<MmaF32x3, kFirstStrict, kFirstHalves, false>(one, Precision::ieee, plans)
           : type == "fp16"
               ? check<MmaF16, kFirstHalves, kTileCount, false>(one, Precision::tf32, plans)
           : type == "bf16"
               ? check<MmaBF16, kFirstHalves, kTileCount, false>(one, Precision::tf32, plans)
           : layout == Layout::nhwc
               ? check<MmaTF32, 0, kFirstStrict, true>(one, Precision::tf32, plans)
               : check<MmaTF32, 0, kFirstStrict, false>(one, Precision::tf32, plans);
  });
}
