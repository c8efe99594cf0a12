// hopper's grad_weight whose dY is fetched, on a CPU: indices, the ring of stages, the NaN rule, in random schedules.
//
//   emulate_fetched_weight CASES TYPE LAYOUT SEED PLANS [NAME]     TYPE: fp16, bf16, tf32, fp32; nhwc: not fp32
//
// ROW=n: plans of that tile only.
// As emulate_hopper_weight does for 16-bit channels-last tensors.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace convt2d::cuda::hopper {
alignas(1024) unsigned char smem[232 * 1024];  // the kernel declares it extern
}

#include "cuda/cuda_families.h"
#include "cuda/hopper/hopper_fetched_weight.cuh"
#include "cuda/visit_row.h"
#include "fibers.h"
#include "weight_trial.h"

namespace {

// Of tiles FIRST to END.
template <class T, int FIRST, int END>
bool check(const Case& one, size_t most) {
  WeightTrial<T> trial(
      one, hopper::kFetchedWeightTiles[FIRST].strict ? Precision::ieee : Precision::tf32);
  const Problem& p = trial.problem;
  std::string reason;
  std::vector<Plan> plans = hopper::fetched_weight_plans(p, invented_device("h200"), reason);
  if (const char* row = std::getenv("ROW"))
    plans.erase(std::remove_if(plans.begin(), plans.end(),
                               [&](const Plan& plan) { return plan.row != std::atoi(row); }),
                plans.end());
  return trial.passes(some_of(plans, most), plans.size(), reason, [&](Plan plan) {
    plan.split = std::min(plan.split, 1 + int(emulate::random() % 3));
    plan.detail[0] = std::min(plan.detail[0], 2 + int(emulate::random() % 3));  // stages
    trial.begin(plan.split);
    trial.args.workspace = trial.partials.data();
    tensor_boxes.clear();
    const hopper::FetchedWeightParams params = hopper::fetched_weight_params(p, plan, trial.args);
    const auto maps = hopper::fetched_weight_maps(params, plan.row, trial.args);
    visit_row<END - FIRST>(plan.row - FIRST, [&](auto row) {
      const hopper::FetchedWeightTile tile = hopper::kFetchedWeightTiles[plan.row];
      emulate::run_grid(
          hopper::fetched_weight_blocks(params), hopper::threads(tile),
          hopper::fetched_shared_bytes(params, tile),
          [&] { hopper::convt2d_hopper_fetched_grad_weight_kernel<T, FIRST + row>(params, maps); });
    });
    return params.partials ? params.split : 0;
  });
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 6) return std::printf("see the head of %s\n", __FILE__), 2;
  emulate::smem = hopper::smem;
  emulate::random.seed(std::atoi(arguments[4]));
  const std::string type = arguments[2];
  const Layout layout = std::string(arguments[3]) == "nhwc" ? Layout::nhwc : Layout::nchw;
  const int plans = std::atoi(arguments[5]);
  using namespace hopper;
  return check_cases(arguments[1], layout, count > 6 ? arguments[6] : "", [&](Case one) {
    if (emulate::random() % 4 == 0)
      one.problem.w_layout = layout == Layout::nhwc ? Layout::nchw : Layout::nhwc;
    if (layout == Layout::nhwc)
      return type == "fp16" ? check<__half, kFirstTurnedWeight, kFetchedWeightTileCount>(one, plans)
             : type == "bf16"
                 ? check<__nv_bfloat16, kFirstTurnedWeight, kFetchedWeightTileCount>(one, plans)
                 : check<float, kFirstChannelsLast, kFirstTurnedWeight>(one, plans);
    return type == "bf16"   ? check<__nv_bfloat16, 0, kFirstWordPlane>(one, plans)
           : type == "tf32" ? check<float, kFirstPlane, kFirstStrictPlane>(one, plans)
           : type == "fp32" ? check<float, kFirstStrictPlane, kFirstChannelsLast>(one, plans)
                            : check<__half, 0, kFirstWordPlane>(one, plans);
  });
}
