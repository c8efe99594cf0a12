// The spread kernel on a CPU, to the bit, in random schedules.
//
//   emulate_spread CASES TYPE DIRECTION SEED PLANS [NAME]     TYPE: fp16, bf16, tf32; DIRECTION: fwd, fwd:nchw, grad_input
//
// As emulate.cpp does for hopper: PLANS plans of each case at random, on integers.
#include <cstdlib>
#include <string>

namespace convt2d::cuda::spread {
alignas(1024) unsigned char smem[232 * 1024];  // the kernel declares it extern
}

#include "cuda/cuda_families.h"
#include "cuda/spread/spread_input.cuh"
#include "cuda/spread/spread_kernel.cuh"
#include "cuda/spread/spread_plan.h"
#include "cuda/visit_row.h"
#include "fibers.h"
#include "gather_trial.h"

namespace {

using namespace convt2d;
using namespace convt2d::cuda;

template <class T>
bool check(const Case& one, int most) {
  GatherTrial<T> trial(one, Direction::fwd, sizeof(T) == 4 ? Precision::tf32 : Precision::ieee);
  std::string reason;
  std::vector<Plan> plans = spread::plans(trial.problem, invented_device("h200"), reason);
  for (Plan& plan : plans) {
    int32_t &channels = plan.detail[0], &stages = plan.detail[2], &walkers = plan.detail[3];
    if (emulate::random() % 4 == 0) channels = 1 + emulate::random() % channels;
    stages = std::min(stages, 2 + int(emulate::random() % 3));
    walkers = std::min(walkers, 1 + int(emulate::random() % 3));
  }
  return trial.passes(trial.some(plans, most, reason), [&](const Plan& plan) {
    const spread::Params params = spread::params_of(trial.problem, plan, trial.args);
    const auto map = spread::map_of(params, spread::kTiles[plan.row]);
    visit_row<spread::kTileCount>(plan.row, [&](auto row) {
      emulate::run_grid(params.walkers, spread::kThreads, params.shared_bytes,
                        [&] { spread::convt2d_spread_kernel<T, row>(params, map); });
    });
  });
}

template <class T>
bool check_input(const Case& one, int most) {
  GatherTrial<T> trial(one, Direction::grad_input,
                       sizeof(T) == 4 ? Precision::tf32 : Precision::ieee);
  std::string reason;
  std::vector<Plan> plans = spread::input_plans(trial.problem, invented_device("h200"), reason);
  for (Plan& plan : plans) {
    int32_t &stages = plan.detail[1], &walkers = plan.detail[2];
    stages = std::min(stages, 2 + int(emulate::random() % 5));
    const spread::InputParams params = spread::input_params_of(trial.problem, plan, trial.args);
    plan.detail[0] -= emulate::random() % (params.slots - params.panels + 1);
    walkers = std::min(walkers, 1 + int(emulate::random() % 3));
  }
  return trial.passes(trial.some(plans, most, reason), [&](const Plan& plan) {
    const spread::InputParams params = spread::input_params_of(trial.problem, plan, trial.args);
    const auto map = spread::input_map_of(params);
    visit_row<spread::kInputTileCount>(plan.row, [&](auto row) {
      emulate::run_grid(params.walkers, spread::kThreads, params.shared_bytes,
                        [&] { spread::convt2d_spread_input_kernel<T, row>(params, map); });
    });
  });
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 6) return std::printf("see the head of %s\n", __FILE__), 2;
  emulate::smem = spread::smem;
  emulate::random.seed(std::atoi(arguments[4]));
  const std::string type = arguments[2];
  const std::string direction = arguments[3];
  const bool forward = direction != "grad_input", planes = direction == "fwd:nchw";
  const int plans = std::atoi(arguments[5]);
  const Layout layout = planes ? Layout::nchw : Layout::nhwc;
  return check_cases(arguments[1], layout, count > 6 ? arguments[6] : "", [&](Case one) {
    if (forward && emulate::random() % 4 == 0)
      one.problem.w_layout = planes ? Layout::nhwc : Layout::nchw;
    if (type == "tf32") return forward ? check<float>(one, plans) : check_input<float>(one, plans);
    if (type == "fp16")
      return forward ? check<__half>(one, plans) : check_input<__half>(one, plans);
    return forward ? check<__nv_bfloat16>(one, plans) : check_input<__nv_bfloat16>(one, plans);
  });
}
