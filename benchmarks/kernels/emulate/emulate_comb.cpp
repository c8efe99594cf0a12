// comb on a CPU, to the bit, in random schedules.
//
//   emulate_comb CASES TYPE SEED PLANS [NAME]     TYPE: fp16, bf16, tf32, fp32; fp16:nhwc and so on; NOTE=text: of plans that say so
//
// As emulate_weight.cpp does for igemm: PLANS plans of each case at random, on integers, and again with an infinity or a
// NaN in places.
#include <algorithm>
#include <cstdlib>
#include <string>

namespace convt2d::cuda::comb {
alignas(1024) unsigned char smem[232 * 1024];  // the kernel declares it extern
}

#include "cuda/comb/comb_kernel.cuh"
#include "cuda/comb/comb_lines.cuh"
#include "cuda/comb/comb_plan.h"
#include "cuda/cuda_families.h"
#include "cuda/visit_row.h"
#include "fibers.h"
#include "weight_trial.h"

namespace {

template <class M, int ROWS>
bool check(const Case& one, Precision precision, int most) {
  using T = typename M::Element;
  WeightTrial<T> trial(one, precision);
  const Problem& p = trial.problem;
  std::string reason;
  std::vector<Plan> all = comb::plans(p, invented_device("h200"), reason);
  if (const char* note = std::getenv("NOTE"))
    all.erase(
        std::remove_if(all.begin(), all.end(),
                       [&](const Plan& plan) { return plan.note.find(note) == std::string::npos; }),
        all.end());
  return trial.passes(some_of(all, most), all.size(), reason, [&](Plan plan) {
    if (plan.row >= comb::kTileCount) {
      trial.begin(1);
      const comb::LineParams params = comb::line_params_of(p, plan, trial.args);
      visit_row<comb::kLineTileCount>(plan.row - comb::kTileCount, [&](auto tile) {
        emulate::run_grid(comb::line_blocks_of(params), comb::kThreads, params.shared_bytes,
                          [&] { comb::convt2d_comb_lines_kernel<M, tile>(params); });
      });
      return 0;
    }
    plan.detail[0] = std::min(plan.detail[0], 2 + int(emulate::random() % 3));
    trial.begin(plan.split);
    trial.args.workspace = trial.partials.data();
    const comb::Params params = comb::params_of(p, plan, trial.args);
    visit_row<ROWS>(plan.row, [&](auto row) {
      emulate::run_grid(comb::blocks_of(params), comb::kThreads,
                        comb::shared_bytes(params, comb::kTiles[row], sizeof(T)),
                        [&] { comb::convt2d_comb_grad_weight_kernel<M, row>(params); });
    });
    if (params.partials) trial.order_by_tap(plan.split);
    return params.partials ? plan.split : 0;
  });
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 5) return std::printf("see the head of %s\n", __FILE__), 2;
  emulate::smem = comb::smem;
  std::string type = arguments[2];
  const size_t colon = type.find(':');
  const Layout layout = colon == std::string::npos ? Layout::nchw : Layout::nhwc;
  type = type.substr(0, colon);
  emulate::random.seed(std::atoi(arguments[3]));
  const int plans = std::atoi(arguments[4]);
  return check_cases(arguments[1], layout, count > 5 ? arguments[5] : "", [&](Case one) {
    using comb::kStrictTiles, comb::kTileCount, comb::kWordTiles;
    return type == "fp16"   ? check<MmaF16, kTileCount>(one, Precision::tf32, plans)
           : type == "bf16" ? check<MmaBF16, kTileCount>(one, Precision::tf32, plans)
           : type == "tf32" ? check<MmaTF32, kWordTiles>(one, Precision::tf32, plans)
                            : check<MmaF32x3, kStrictTiles>(one, Precision::ieee, plans);
  });
}
