// The tuft kernel on a CPU, to the bit, in random schedules.
//
//   emulate_tuft CASES TYPE SEED PLANS [NAME]     TYPE: fp16, bf16, tf32
//
// As emulate.cpp does for hopper: PLANS plans of each case at random, on integers.
#include <string>

namespace convt2d::cuda::tuft {
alignas(1024) unsigned char smem[232 * 1024];  // the kernel declares it extern
}

#include "cuda/cuda_families.h"
#include "cuda/tuft/tuft_kernel.cuh"
#include "cuda/tuft/tuft_plan.h"
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
  std::vector<Plan> plans = tuft::plans(trial.problem, invented_device("h200"), reason);
  for (Plan& plan : plans) {
    int32_t &stages = plan.detail[0], &walkers = plan.detail[1];
    stages = std::min(stages, 2 + int(emulate::random() % 3));
    walkers = std::min(walkers, 1 + int(emulate::random() % 3));
  }
  return trial.passes(trial.some(plans, most, reason), [&](const Plan& plan) {
    const tuft::Params params = tuft::params_of(trial.problem, plan, trial.args);
    const auto maps = tuft::maps_of(trial.problem, params, trial.args);
    visit_row<tuft::kTileCount>(plan.row, [&](auto row) {
      if constexpr (tuft::has_tile(row, sizeof(T)))
        emulate::run_grid(tuft::blocks_of(params), tuft::threads(tuft::kTiles[row]),
                          params.shared_bytes,
                          [&] { tuft::convt2d_tuft_kernel<T, row>(params, maps); });
    });
  });
}

}  // namespace

int main(int count, char** arguments) {
  emulate::smem = tuft::smem;
  return check_numbers(count, arguments, __FILE__, [](auto number, const Case& one, int plans) {
    return check<decltype(number)>(one, plans);
  });
}
