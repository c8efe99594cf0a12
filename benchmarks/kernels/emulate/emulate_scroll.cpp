// The scroll kernel on a CPU, to the bit, in random schedules.
//
//   emulate_scroll CASES TYPE PASS SEED PLANS [NAME]     TYPE: fp16, bf16, tf32, of planes fp16:nchw; PASS: fwd, grad_input
//
// As emulate.cpp does for hopper: PLANS plans of each case at random, on integers, every other time with some that are not
// finite.
#include <cstdlib>
#include <string>

namespace convt2d::cuda::scroll {
alignas(1024) unsigned char smem[232 * 1024];  // the kernel declares it extern
}

#include "cuda/cuda_families.h"
#include "cuda/scroll/scroll_kernel.cuh"
#include "cuda/scroll/scroll_plan.h"
#include "cuda/scroll/scroll_planes.cuh"
#include "cuda/scroll/scroll_planes_plan.h"
#include "cuda/visit_row.h"
#include "fibers.h"
#include "gather_trial.h"

namespace {

using namespace convt2d;
using namespace convt2d::cuda;

// With fewer stages and blocks than there is room for.
void reduce(Plan& plan) {
  plan.detail[1] = std::min(plan.detail[1], 2 + int(emulate::random() % 3));
  const bool planes = scroll::kTiles[plan.row].phases > 0;
  for (int phase = 0; phase < (planes ? 1 : scroll::kMostPhases); ++phase)
    plan.detail[2 + phase] = std::min(plan.detail[2 + phase], 1 + int(emulate::random() % 3));
  if (planes) plan.detail[0] = std::min(plan.detail[0], 2 + int(emulate::random() % 2));
}

template <class T>
bool check(const Case& one, Direction direction, int most) {
  GatherTrial<T> trial(one, direction, sizeof(T) == 4 ? Precision::tf32 : Precision::ieee,
                       emulate::random() % 2);
  std::string reason;
  std::vector<Plan> plans = scroll::plans(trial.problem, invented_device("h200"), reason);
  for (Plan& plan : plans) reduce(plan);
  return trial.passes(trial.some(plans, most, reason), [&](const Plan& plan) {
    visit_row<scroll::kTileCount>(plan.row, [&](auto row) {
      const auto run = [](const scroll::Params& params, int threads, auto&& kernel) {
        emulate::run_grid(scroll::blocks_of(params), threads, params.shared_bytes, kernel);
      };
      if constexpr (scroll::kTiles[row].phases > 0) {
        const auto params = scroll::plane_params_of(trial.problem, plan, trial.args);
        run(params, scroll::threads_of(params),
            [&] { scroll::convt2d_scroll_planes_kernel<T, row>(params); });
      } else {
        const auto params = scroll::params_of(trial.problem, plan, trial.args);
        const auto map = scroll::map_of(params);
        run(params, scroll::threads(params.warpgroups),
            [&] { scroll::convt2d_scroll_kernel<T, row>(params, map); });
      }
    });
  });
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 6) return std::printf("see the head of %s\n", __FILE__), 2;
  emulate::smem = scroll::smem;
  const std::string mode = arguments[2], pass = arguments[3];
  const Direction direction = pass == "fwd" ? Direction::fwd : Direction::grad_input;
  emulate::random.seed(std::atoi(arguments[4]));
  const int plans = std::atoi(arguments[5]);
  const bool planes = mode.find(":nchw") != mode.npos;
  const std::string type = mode.substr(0, mode.find(':'));
  return check_cases(arguments[1], planes ? Layout::nchw : Layout::nhwc,
                     count > 6 ? arguments[6] : "", [&](Case one) {
                       return type == "fp16"   ? check<__half>(one, direction, plans)
                              : type == "bf16" ? check<__nv_bfloat16>(one, direction, plans)
                                               : check<float>(one, direction, plans);
                     });
}
