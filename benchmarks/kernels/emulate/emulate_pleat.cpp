// The pleat kernel on a CPU, to the bit, in random schedules.
//
//   emulate_pleat CASES TYPE SEED PLANS [NAME]     TYPE: fp16, bf16
//
// As emulate.cpp does for hopper: PLANS plans of each case at random, on integers.
#include <string>

namespace convt2d::cuda::pleat {
alignas(1024) unsigned char smem[232 * 1024];  // the kernel declares it extern
}

#include "cuda/cuda_families.h"
#include "cuda/pleat/pleat_kernel.cuh"
#include "cuda/pleat/pleat_plan.h"
#include "cuda/visit_row.h"
#include "fibers.h"
#include "gather_trial.h"

namespace {

using namespace convt2d;
using namespace convt2d::cuda;

template <class T>
bool check(const Case& one, int most) {
  GatherTrial<T> trial(one, Direction::fwd, Precision::ieee);
  std::string reason;
  std::vector<Plan> plans = pleat::plans(trial.problem, invented_device("h200"), reason);
  for (Plan& plan : plans) {
    int32_t &stages = plan.detail[2], &walkers = plan.detail[3];
    stages = std::min(stages, 2 + int(emulate::random() % 3));
    walkers = std::min(walkers, 1 + int(emulate::random() % 3));
  }
  return trial.passes(trial.some(plans, most, reason), [&](const Plan& plan) {
    const pleat::Params params = pleat::params_of(trial.problem, plan, trial.args);
    const auto maps = pleat::maps_of(trial.problem, params, trial.args);
    visit_row<pleat::kKernels>(plan.row, [&](auto row) {
      emulate::run_grid(plan.detail[3], pleat::kThreads, params.shared_bytes, [&] {
        pleat::convt2d_pleat_kernel<T, decltype(row)::value>(params, maps);
      });
    });
  });
}

}  // namespace

int main(int count, char** arguments) {
  emulate::smem = pleat::smem;
  return check_halves(count, arguments, __FILE__, [](auto number, const Case& one, int plans) {
    return check<decltype(number)>(one, plans);
  });
}
