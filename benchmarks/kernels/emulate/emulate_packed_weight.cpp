// hopper's grad_weight whose columns are packed, on a CPU: indices, both rings, the NaN rule, in random schedules.
//
//   emulate_packed_weight CASES TYPE SEED PLANS [NAME]     TYPE: fp16, bf16
//
// As emulate_hopper_weight does for other channels-last tensors.
#include <cstdio>
#include <string>

namespace convt2d::cuda::hopper {
alignas(1024) unsigned char smem[232 * 1024];  // the kernel declares it extern
}

#include "cuda/cuda_families.h"
#include "cuda/hopper/hopper_packed_weight.cuh"
#include "cuda/visit_row.h"
#include "fibers.h"
#include "weight_trial.h"

namespace {

template <class T>
bool check(const Case& one, size_t most) {
  WeightTrial<T> trial(one);
  const Problem& p = trial.problem;
  std::string reason;
  const std::vector<Plan> plans = hopper::packed_weight_plans(p, invented_device("h200"), reason);
  return trial.passes(some_of(plans, most), plans.size(), reason, [&](Plan plan) {
    plan.split = std::min(plan.split, 1 + int(emulate::random() % 3));
    plan.detail[4] = std::min(plan.detail[4], 2 + int(emulate::random() % 3));  // stages
    trial.begin(plan.split);
    trial.args.workspace = trial.partials.data();
    tensor_boxes.clear();
    const hopper::PackedWeightParams params = hopper::packed_weight_params(p, plan, trial.args);
    const CUtensorMap x = hopper::packed_weight_map(params, trial.args);
    visit_row<hopper::kPackedWeightTileCount>(plan.row - hopper::kFirstPackedWeight, [&](auto row) {
      emulate::run_grid(hopper::packed_weight_blocks(params), hopper::kPackedThreads,
                        hopper::packed_shared_bytes(params, hopper::kPackedWeightTiles[row]), [&] {
                          hopper::convt2d_hopper_packed_grad_weight_kernel<T, row>(params, x);
                        });
    });
    return params.partials ? params.split : 0;
  });
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 5) return std::printf("see the head of %s\n", __FILE__), 2;
  emulate::smem = hopper::smem;
  emulate::random.seed(std::atoi(arguments[3]));
  const std::string type = arguments[2];
  const int plans = std::atoi(arguments[4]);
  return check_cases(arguments[1], Layout::nhwc, count > 5 ? arguments[5] : "", [&](Case one) {
    if (emulate::random() % 4 == 0) one.problem.w_layout = Layout::nchw;
    return type == "bf16" ? check<__nv_bfloat16>(one, plans) : check<__half>(one, plans);
  });
}
