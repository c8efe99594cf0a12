// The fan kernel on a CPU, to the bit, in random schedules.
//
//   emulate_fan CASES SEED PLANS [NAME]
//
// As emulate.cpp does for hopper: PLANS plans of each case at random, on integers. TF32 NCHW is all there is.
#include <cstdlib>
#include <string>

namespace convt2d::cuda::fan {
alignas(1024) unsigned char smem[232 * 1024];  // the kernel declares it extern
}

#include "cuda/cuda_families.h"
#include "cuda/fan/fan_kernel.cuh"
#include "cuda/fan/fan_plan.h"
#include "cuda/visit_row.h"
#include "fibers.h"
#include "gather_trial.h"

namespace {

using namespace convt2d;
using namespace convt2d::cuda;

bool check(const Case& one, int most) {
  GatherTrial<float> trial(one, Direction::fwd, Precision::tf32);
  std::string reason;
  std::vector<Plan> plans = fan::plans(trial.problem, invented_device("h200"), reason);
  for (Plan& plan : plans) {
    int32_t &x = plan.detail[4], &raw = plan.detail[5], &turned = plan.detail[6],
            *walkers = &plan.detail[7];
    x = std::min(x, 2 + int(emulate::random() % 3));  // a buffer is given back from the next one
    raw = std::min(raw, 1 + int(emulate::random() % 3));
    if (turned) turned = std::min(turned, 2 + int(emulate::random() % 2));
    for (int g = 0; g < fan::kMostGroups; ++g)
      if (walkers[g]) walkers[g] = std::min(walkers[g], 1 + int(emulate::random() % 3));
  }
  return trial.passes(trial.some(plans, most, reason), [&](const Plan& plan) {
    const fan::GatherParams params = fan::params_of(trial.problem, plan, trial.args);
    const fan::TensorMaps maps = fan::maps_of(params);
    visit_row<fan::kTileCount>(plan.row, [&](auto row) {
      emulate::run_grid(fan::blocks_of(params), fan::kThreads, params.shared_bytes,
                        [&] { fan::convt2d_fan_kernel<row>(params, maps); });
    });
  });
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 4) return std::printf("see the head of %s\n", __FILE__), 2;
  emulate::smem = fan::smem;
  emulate::random.seed(std::atoi(arguments[2]));
  const int plans = std::atoi(arguments[3]);
  return check_cases(arguments[1], Layout::nchw, count > 4 ? arguments[4] : "",
                     [&](const Case& one) { return check(one, plans); });
}
