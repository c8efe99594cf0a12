// The gauze kernel on a CPU, to the bit, in random schedules.
//
//   emulate_gauze CASES TYPE SEED PLANS [NAME]     TYPE: fp16, bf16, tf32
//
// As emulate.cpp does for hopper: PLANS plans of each case at random, on integers.
#include <string>

namespace convt2d::cuda::gauze {
alignas(1024) unsigned char smem[232 * 1024];  // the kernel declares it extern
}

#include "cuda/cuda_families.h"
#include "cuda/gauze/gauze_kernel.cuh"
#include "cuda/gauze/gauze_plan.h"
#include "cuda/visit_row.h"
#include "fibers.h"
#include "gather_trial.h"

namespace {

using namespace convt2d;
using namespace convt2d::cuda;

template <class T>
bool check(const Case& one, int most) {
  GatherTrial<T> trial(one, Direction::fwd, Precision::tf32);
  std::string reason;
  std::vector<Plan> plans = gauze::plans(trial.problem, invented_device("h200"), reason);
  for (Plan& plan : plans) {
    int32_t &walkers = plan.detail[0], &stages = plan.detail[1];
    const gauze::Params p = gauze::params_of(trial.problem, plan, trial.args);
    // Blocks have the same channels in all their tiles.
    const int same = int(p.by_blocks.divisor * p.by_groups.divisor);
    walkers = std::min(walkers, same * (1 + int(emulate::random() % 3)));
    stages = std::min(stages, 2 + int(emulate::random() % 3));
  }
  return trial.passes(trial.some(plans, most, reason), [&](const Plan& plan) {
    const gauze::Params params = gauze::params_of(trial.problem, plan, trial.args);
    const auto maps = gauze::maps_of(trial.problem, params, trial.args);
    visit_row<gauze::tiles_of(sizeof(T))>(plan.row, [&](auto row) {
      constexpr int kRow = decltype(row)::value;
      emulate::run_grid(params.walkers, gauze::threads(gauze::kTiles[kRow]), params.shared_bytes,
                        [&] { gauze::convt2d_gauze_kernel<T, kRow>(params, maps); });
    });
  });
}

}  // namespace

int main(int count, char** arguments) {
  emulate::smem = gauze::smem;
  return check_numbers(count, arguments, __FILE__, [](auto number, const Case& one, int plans) {
    return check<decltype(number)>(one, plans);
  });
}
