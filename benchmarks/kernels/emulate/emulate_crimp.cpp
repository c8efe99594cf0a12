// The crimp kernels on a CPU, to the bit, in random schedules.
//
//   emulate_crimp CASES TYPE SEED PLANS [NAME]     TYPE: fp16, bf16, tf32
//
// As emulate.cpp does for hopper: PLANS plans of each case at random, on integers.
#include <string>

namespace convt2d::cuda::crimp {
alignas(1024) unsigned char smem[232 * 1024];  // the kernels declare it extern
}

#include "cuda/crimp/crimp_kernel.cuh"
#include "cuda/crimp/crimp_plan.h"
#include "cuda/crimp/crimp_words.cuh"
#include "cuda/cuda_families.h"
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
  std::vector<Plan> plans = crimp::plans(trial.problem, invented_device("h200"), reason);
  for (Plan& plan : plans) {
    int32_t &stages = plan.detail[3], &walkers = plan.detail[4];
    stages = std::min(stages, 2 + int(emulate::random() % 3));
    const crimp::Params p = crimp::params_of(trial.problem, plan, trial.args);
    walkers = std::min(walkers, p.row_tiles * p.groups * (1 + int(emulate::random() % 3)));
  }
  return trial.passes(trial.some(plans, most, reason), [&](const Plan& plan) {
    const crimp::Params params = crimp::params_of(trial.problem, plan, trial.args);
    const auto maps = crimp::maps_of(trial.problem, plan, params, trial.args);
    constexpr bool kWords = sizeof(T) == 4;
    visit_row<kWords ? crimp::kColumnWidths : crimp::kWidths>(plan.row, [&](auto row) {
      emulate::run_grid(params.walkers, crimp::threads_of(params.teams), params.shared_bytes, [&] {
        if constexpr (kWords) {
          crimp::convt2d_crimp_words_kernel<crimp::columns_of(decltype(row)::value)>(params, maps);
        } else {
          crimp::convt2d_crimp_kernel<T, crimp::eights_of(decltype(row)::value)>(params, maps);
        }
      });
    });
  });
}

}  // namespace

int main(int count, char** arguments) {
  emulate::smem = crimp::smem;
  return check_numbers(count, arguments, __FILE__, [](auto number, const Case& one, int plans) {
    return check<decltype(number)>(one, plans);
  });
}
