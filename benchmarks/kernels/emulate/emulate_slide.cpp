// The slide kernel on a CPU, to the bit, in random schedules.
//
//   emulate_slide CASES TYPE SEED PLANS [NAME]     TYPE: fp16, bf16
//
// As emulate.cpp does for hopper: PLANS plans of each case at random in either direction, on
// integers.
#include <cstdlib>
#include <string>

namespace convt2d::cuda::slide {
alignas(1024) unsigned char smem[232 * 1024];  // the kernel declares it extern
}

#include "cuda/cuda_families.h"
#include "cuda/slide/slide_kernel.cuh"
#include "cuda/slide/slide_plan.h"
#include "cuda/slide/slide_rows_plan.h"
#include "cuda/slide/slide_strided.cuh"
#include "cuda/slide/slide_turned.cuh"
#include "cuda/visit_row.h"
#include "fibers.h"
#include "gather_trial.h"

namespace {

using namespace convt2d;
using namespace convt2d::cuda;

template <class T>
bool check(const Case& one, int most) {
  const bool forward = emulate::random() % 3 != 0 && !std::getenv("GRADIENT");
  const Direction direction = forward ? Direction::fwd : Direction::grad_input;
  GatherTrial<T> trial(one, direction, Precision::ieee);
  std::string reason;
  std::vector<Plan> plans = slide::plans(trial.problem, invented_device("h200"), reason);
  for (Plan& plan : plans) {
    if (plan.row >= slide::kStridedRow) {
      int32_t &slots = plan.detail[4], &walkers = plan.detail[5];
      const int least = std::max(
          2, slide::most_slots_passed(slide::strided_params_of(trial.problem, plan, trial.args)));
      slots = std::min(slots, least + int(emulate::random() % 3));
      walkers = std::min(walkers, 1 + int(emulate::random() % 3));
      continue;
    }
    int32_t &stages = plan.detail[2], &walkers = plan.detail[3];
    int least = 2;
    if (plan.row >= slide::kTurnedRow)
      least = slide::group_reach(slide::turned_params_of(trial.problem, plan, trial.args)) +
              slide::kLeastAhead;
    stages = std::min(stages, least + int(emulate::random() % 3));
    walkers = std::min(walkers, 1 + int(emulate::random() % 3));
  }
  return trial.passes(trial.some(plans, most, reason), [&](const Plan& plan) {
    if (plan.row >= slide::kStridedRow) {
      const auto params = slide::strided_params_of(trial.problem, plan, trial.args);
      const auto map = slide::map_of(params);
      return visit_row<slide::kWidthCount>(plan.row - slide::kStridedRow, [&](auto row) {
        emulate::run_grid(slide::blocks_of(params), slide::kRowThreads, params.shared_bytes, [&] {
          slide::convt2d_slide_strided_kernel<T, slide::kWidths[row]>(params, map);
        });
      });
    }
    if (plan.row >= slide::kTurnedRow) {
      const auto params = slide::turned_params_of(trial.problem, plan, trial.args);
      const auto map = slide::map_of(params);
      return visit_row<slide::kStripCount>(plan.row - slide::kTurnedRow, [&](auto row) {
        emulate::run_grid(
            slide::blocks_of(params), slide::kTurnedThreads, params.shared_bytes,
            [&] { slide::convt2d_slide_turned_kernel<T, slide::kStrips[row]>(params, map); });
      });
    }
    const slide::Params params = slide::params_of(trial.problem, plan, trial.args);
    const auto maps = slide::map_of(params);
    visit_row<slide::kTileCount>(plan.row, [&](auto row) {
      emulate::run_grid(slide::blocks_of(params), slide::kThreads, params.shared_bytes,
                        [&] { slide::convt2d_slide_kernel<T, row>(params, maps); });
    });
  });
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 5) return std::printf("see the head of %s\n", __FILE__), 2;
  emulate::smem = slide::smem;
  emulate::random.seed(std::atoi(arguments[3]));
  const std::string type = arguments[2];
  const int plans = std::atoi(arguments[4]);
  return check_cases(arguments[1], Layout::nchw, count > 5 ? arguments[5] : "", [&](Case one) {
    if (emulate::random() % 4 == 0) one.problem.w_layout = Layout::nhwc;
    return type == "fp16" ? check<__half>(one, plans) : check<__nv_bfloat16>(one, plans);
  });
}
