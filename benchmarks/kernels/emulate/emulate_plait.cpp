// plait's kernel on a CPU, to the bit, in random schedules.
//
//   emulate_plait CASES TYPE SEED PLANS [NAME]     TYPE: fp16, bf16
//
// As emulate.cpp does for hopper: PLANS plans of each case at random, on integers, every third time with numbers that
// are not finite.
#include <cstdlib>
#include <string>

namespace convt2d::cuda::plait {
alignas(1024) unsigned char smem[232 * 1024];  // the kernel declares it extern
}

#include "cuda/cuda_families.h"
#include "cuda/plait/plait_kernel.cuh"
#include "cuda/plait/plait_plan.h"
#include "fibers.h"
#include "gather_trial.h"

namespace {

using namespace convt2d;
using namespace convt2d::cuda;

template <class T>
bool check(const Case& one, int most) {
  GatherTrial<T> trial(one, Direction::grad_input, Precision::ieee, emulate::random() % 3 != 0);
  std::string reason;
  std::vector<Plan> plans = plait::plans(trial.problem, invented_device("h200"), reason);
  for (Plan& plan : plans) {
    int32_t &stages = plan.detail[0], &walkers = plan.detail[1];
    const int fewer = 2 + int(emulate::random() % 3);
    stages = stages < 0 ? -std::min(-stages, fewer) : std::min(stages, fewer);
    walkers = std::min(walkers, 1 + int(emulate::random() % 3));
    plan.detail[2] = std::min(plan.detail[2], plait::kLeastRawStages + int(emulate::random() % 3));
  }
  return trial.passes(trial.some(plans, most, reason), [&](const Plan& plan) {
    const plait::Params params = plait::params_of(trial.problem, plan, trial.args);
    const auto maps = plait::maps_of(params);
    emulate::run_grid(plait::blocks_of(params), plait::kThreads, params.shared_bytes,
                      [&] { plait::convt2d_plait_kernel<T>(params, maps); });
  });
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 5) return std::printf("see the head of %s\n", __FILE__), 2;
  emulate::smem = plait::smem;
  emulate::random.seed(std::atoi(arguments[3]));
  const std::string type = arguments[2];
  const int plans = std::atoi(arguments[4]);
  return check_cases(
      arguments[1], Layout::nchw, count > 5 ? arguments[5] : "", [&](const Case& one) {
        return type == "fp16" ? check<__half>(one, plans) : check<__nv_bfloat16>(one, plans);
      });
}
