// The purl kernel on a CPU, to the bit, in random schedules.
//
//   emulate_purl CASES TYPE SEED PLANS [NAME]     TYPE: fp16, bf16, tf32
//
// As emulate.cpp does for hopper: PLANS plans of each case at random, on integers.
#include <string>

namespace convt2d::cuda::purl {
alignas(1024) unsigned char smem[232 * 1024];  // the kernel declares it extern
}

#include "cuda/cuda_families.h"
#include "cuda/purl/purl_kernel.cuh"
#include "cuda/purl/purl_plan.h"
#include "cuda/visit_row.h"
#include "fibers.h"
#include "gather_trial.h"

namespace {

using namespace convt2d;
using namespace convt2d::cuda;

template <class T>
bool check(const Case& one, int most) {
  GatherTrial<T> trial(one, Direction::grad_input, Precision::tf32);
  std::string reason;
  std::vector<Plan> plans = purl::plans(trial.problem, invented_device("h200"), reason);
  for (Plan& plan : plans) {
    int32_t &walkers = plan.detail[0], &stages = plan.detail[1];
    const bool resident = plan.detail[2];
    const purl::Params p = purl::params_of(trial.problem, plan, trial.args);
    // Blocks whose weights stay have the same channels in all their tiles.
    const int same = resident ? int(p.by_blocks.divisor * p.by_groups.divisor) : 1;
    walkers = std::min(walkers, same * (1 + int(emulate::random() % 3)));
    stages = std::min(stages, 2 + int(emulate::random() % 3));
  }
  return trial.passes(trial.some(plans, most, reason), [&](const Plan& plan) {
    const purl::Params params = purl::params_of(trial.problem, plan, trial.args);
    const auto maps = purl::maps_of(trial.problem, plan, params, trial.args);
    visit_row<purl::tiles_of(sizeof(T))>(plan.row, [&](auto row) {
      emulate::run_grid(params.walkers, purl::kThreads, params.shared_bytes,
                        [&] { purl::convt2d_purl_kernel<T, decltype(row)::value>(params, maps); });
    });
  });
}

}  // namespace

int main(int count, char** arguments) {
  emulate::smem = purl::smem;
  return check_numbers(count, arguments, __FILE__, [](auto number, const Case& one, int plans) {
    return check<decltype(number)>(one, plans);
  });
}
