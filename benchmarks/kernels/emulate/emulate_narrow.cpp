// The narrow kernel on a CPU, to the bit, in random schedules.
//
//   emulate_narrow CASES TYPE LAYOUT SEED PLANS [NAME]     TYPE: fp16, bf16, tf32, fp32, weight:fp16 and so on; LAYOUT: nchw, nhwc
//
// As emulate.cpp does for hopper: PLANS plans of each case at random, on integers.
#include <algorithm>
#include <cstdlib>
#include <string>

namespace convt2d::cuda::narrow {
alignas(1024) unsigned char smem[232 * 1024];  // the kernel declares it extern
}

#include "cuda/cuda_families.h"
#include "cuda/narrow/narrow_kernel.cuh"
#include "cuda/narrow/narrow_plan.h"
#include "cuda/narrow/narrow_ribbon.cuh"
#include "cuda/narrow/narrow_weight.cuh"
#include "cuda/visit_row.h"
#include "fibers.h"
#include "gather_trial.h"
#include "weight_trial.h"

namespace {

using namespace convt2d;
using namespace convt2d::cuda;

template <class T>
bool check(const Case& one, Precision precision, int most) {
  GatherTrial<T> trial(one, Direction::fwd, precision);
  std::string reason;
  std::vector<Plan> plans = narrow::plans(trial.problem, invented_device("h200"), reason);
  if (std::getenv("RIBBONS"))  // of these only
    plans.erase(std::remove_if(plans.begin(), plans.end(),
                               [](const Plan& plan) { return plan.row < narrow::kTileCount; }),
                plans.end());
  for (Plan& plan : plans) {
    if (plan.row >= narrow::kTileCount) {
      if (!narrow::collects_apart(narrow::kRibbons[plan.row - narrow::kTileCount], sizeof(T)))
        plan.detail[1] = std::min(plan.detail[1], 1 + int(emulate::random() % 4));
      plan.detail[2] = std::min(plan.detail[2], 1 + int(emulate::random() % 7));
      continue;
    }
    int32_t &rows = plan.detail[1], &stages = plan.detail[2], &walkers = plan.detail[3];
    const Axis& h = trial.problem.h;
    const int reach = int((h.kernel - 1) * h.dilation / h.stride);
    if (emulate::random() % 2) rows = std::min(rows, 1 + int(emulate::random() % 8));
    stages = std::min(stages, reach + 1 + int(emulate::random() % 4));
    walkers = std::min(walkers, 1 + int(emulate::random() % 3));
  }
  return trial.passes(trial.some(plans, most, reason), [&](const Plan& plan) {
    if (plan.row >= narrow::kTileCount) {
      const narrow::RibbonParams params = narrow::ribbon_params_of(trial.problem, plan, trial.args);
      const auto map = narrow::ribbon_map_of(params);
      constexpr int kRows = sizeof(T) == 4 ? narrow::kRibbonCount : narrow::kFirstStrictRibbon;
      visit_row<kRows>(plan.row - narrow::kTileCount, [&](auto row) {
        emulate::run_grid(params.walkers, narrow::ribbon_threads(narrow::kRibbons[row]),
                          params.shared_bytes,
                          [&] { narrow::convt2d_narrow_ribbon_kernel<T, row>(params, map); });
      });
      return;
    }
    const narrow::Params params = narrow::params_of(trial.problem, plan, trial.args);
    const auto map = narrow::map_of(params, narrow::kTiles[plan.row]);
    visit_row<sizeof(T) == 4 ? narrow::kTileCount : narrow::kFirstStrict>(plan.row, [&](auto row) {
      emulate::run_grid(params.walkers, narrow::kThreads, params.shared_bytes,
                        [&] { narrow::convt2d_narrow_kernel<T, row>(params, map); });
    });
  });
}

// grad_weight, and with an infinity or a NaN in places every other time.
template <class M>
bool check_weight(const Case& one, Precision precision, int most) {
  using T = typename M::Element;
  WeightTrial<T> trial(one, precision);
  const Problem& p = trial.problem;
  std::string reason;
  const std::vector<Plan> all = narrow::weight_plans(p, invented_device("h200"), reason);
  return trial.passes(some_of(all, most), all.size(), reason, [&](Plan plan) {
    if (emulate::random() % 2) plan.split = std::min(plan.split, 1 + int(emulate::random() % 3));
    trial.begin(plan.split);
    trial.args.workspace = trial.partials.data();
    const narrow::WeightParams params = narrow::weight_params_of(p, plan, trial.args);
    constexpr int kFirst = M::kSplit ? narrow::kFirstStrictWeight : 0;
    visit_row<1>(plan.row - kFirst, [&](auto index) {
      constexpr int kRow = kFirst + decltype(index)::value;
      emulate::run_grid(narrow::weight_blocks(params), narrow::kWeightThreads, params.shared_bytes,
                        [&] { narrow::convt2d_narrow_grad_weight_kernel<M, kRow>(params); });
    });
    return params.partials ? plan.split : 0;
  });
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 6) return std::printf("see the head of %s\n", __FILE__), 2;
  emulate::smem = narrow::smem;
  emulate::random.seed(std::atoi(arguments[4]));
  const std::string type = arguments[2];
  const Layout layout = std::string(arguments[3]) == "nhwc" ? Layout::nhwc : Layout::nchw;
  const int plans = std::atoi(arguments[5]);
  return check_cases(arguments[1], layout, count > 6 ? arguments[6] : "", [&](Case one) {
    if (emulate::random() % 4 == 0) one.problem.w_layout = Layout::nhwc;
    if (type == "weight:fp32") return check_weight<MmaF32x3>(one, Precision::ieee, plans);
    if (type == "weight:tf32") return check_weight<MmaTF32>(one, Precision::tf32, plans);
    if (type == "weight:fp16") return check_weight<MmaF16>(one, Precision::tf32, plans);
    if (type == "weight:bf16") return check_weight<MmaBF16>(one, Precision::tf32, plans);
    if (type == "fp32") return check<float>(one, Precision::ieee, plans);
    if (type == "tf32") return check<float>(one, Precision::tf32, plans);
    return type == "fp16" ? check<__half>(one, Precision::ieee, plans)
                          : check<__nv_bfloat16>(one, Precision::ieee, plans);
  });
}
