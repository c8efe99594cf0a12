// The loom kernel on a CPU, to the bit, in random schedules.
//
//   emulate_loom CASES TYPE SEED PLANS [NAME]     TYPE: fp16, bf16, tf32, fp32
//
// As emulate.cpp does for hopper: PLANS plans of each case at random, on integers. NCHW is all there is. NOTE=TEXT in the
// environment keeps plans whose description has that.
#include <algorithm>
#include <cstdlib>
#include <string>

namespace convt2d::cuda::loom {
alignas(1024) unsigned char smem[232 * 1024];  // the kernel declares it extern
}

#include "cuda/cuda_families.h"
#include "cuda/loom/loom_kernel.cuh"
#include "cuda/loom/loom_plan.h"
#include "cuda/visit_row.h"
#include "fibers.h"
#include "gather_trial.h"

namespace {

using namespace convt2d;
using namespace convt2d::cuda;

template <class T>
bool check(const Case& one, Direction direction, Precision precision, int most) {
  GatherTrial<T> trial(one, direction, precision);
  std::string reason;
  std::vector<Plan> plans = loom::plans(trial.problem, invented_device("h200"), reason);
  if (const char* note = std::getenv("NOTE"))  // only plans that are described so
    plans.erase(
        std::remove_if(plans.begin(), plans.end(),
                       [&](const Plan& plan) { return plan.note.find(note) == std::string::npos; }),
        plans.end());
  for (Plan& plan : plans) {
    int32_t &x = plan.detail[5], &turned = plan.detail[6], &weights = plan.detail[7],
            *walkers = &plan.detail[8];
    x = std::min(x, 1 + int(emulate::random() % 3));
    // One is given back from the next one.
    const loom::Tile tile = loom::kTiles[plan.row];
    const loom::GatherParams params = loom::params_of(trial.problem, plan, trial.args);
    const auto some = [&](int least) { return std::max(least, 2 + int(emulate::random() % 2)); };
    turned = std::min(turned, some(loom::least_turned(tile, params)));
    if (weights) weights = std::min(weights, some(loom::least_weights(tile, params)));
    for (int g = 0; g < loom::kMostGroups; ++g)
      if (walkers[g]) walkers[g] = std::min(walkers[g], 1 + int(emulate::random() % 3));
    // Any plan of one group of phases may have its walkers first, and any may have rounds.
    plan.detail[3] = plan.detail[3] % 1024 + (walkers[1] == 0 && emulate::random() % 2 ? 1024 : 0) +
                     emulate::random() % 3 * 2048;
  }
  return trial.passes(trial.some(plans, most, reason), [&](const Plan& plan) {
    const loom::GatherParams params = loom::params_of(trial.problem, plan, trial.args);
    const loom::TensorMaps maps = loom::maps_of(params);
    constexpr int kRows = sizeof(T) == 4 ? loom::kTileCount : loom::kFirstStrict;
    visit_row<kRows>(plan.row, [&](auto row) {
      emulate::run_grid(loom::blocks_of(params), loom::kThreads, params.shared_bytes,
                        [&] { loom::convt2d_loom_kernel<T, row>(params, maps); });
    });
  });
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 5) return std::printf("see the head of %s\n", __FILE__), 2;
  emulate::smem = loom::smem;
  emulate::random.seed(std::atoi(arguments[3]));
  const std::string type = arguments[2];
  const Precision precision = type == "fp32" ? Precision::ieee : Precision::tf32;
  const int plans = std::atoi(arguments[4]);
  return check_cases(
      arguments[1], Layout::nchw, count > 5 ? arguments[5] : "", [&](const Case& one) {
        bool good = true;
        for (const Direction direction : {Direction::fwd, Direction::grad_input})
          good &= type == "fp16"   ? check<__half>(one, direction, precision, plans)
                  : type == "bf16" ? check<__nv_bfloat16>(one, direction, precision, plans)
                                   : check<float>(one, direction, precision, plans);
        return good;
      });
}
