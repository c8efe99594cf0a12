// hopper's grad_weight on a CPU: indices, the ring of stages, the NaN rule, in random schedules.
//
//   emulate_hopper_weight CASES TYPE SEED PLANS [NAME]     TYPE: fp16, bf16
//
// Of each case the best plan of every tile and PLANS at random run on integers, and again with an infinity or a NaN
// in places; outputs hold NaN before, shared memory NaN or numbers. The two passes that add up pieces and the bias gradient
// are not in it.
#include <cstdio>
#include <string>
#include <utility>

namespace convt2d::cuda::hopper {
alignas(1024) unsigned char smem[232 * 1024];  // the kernel declares it extern
}

#include "core/phases.h"
#include "cuda/cuda_families.h"
#include "cuda/hopper/hopper_weight.cuh"
#include "cuda/hopper/hopper_weight_plan.h"
#include "cuda/visit_row.h"
#include "cuda/weight_sum.h"
#include "fibers.h"
#include "weight_trial.h"

namespace {

using hopper::WeightParams;

template <class T>
bool check(const Case& one, int random_plans) {
  WeightTrial<T> trial(one);
  const Problem& p = trial.problem;
  const Device device = invented_device("h200");
  const Decision decision = hopper::weight_plan(p, device);
  std::string reason = decision.reason;
  std::vector<hopper::WeightCandidate> candidates;
  if (decision.accepted) candidates = hopper::weight_candidates(p, device, reason);
  std::vector<Plan> plans;
  for (size_t i : worth_running(candidates, random_plans, [](const hopper::WeightChoice& choice) {
         return std::pair{choice.row, choice.shared};
       }))
    plans.push_back(hopper::weight_plan_of(p, device, candidates[i]));
  return trial.passes(plans, candidates.size(), reason, [&](const Plan& plan) {
    hopper::WeightChoice choice = hopper::weight_choice_of(plan);
    choice.split = std::min(choice.split, 1 + int(emulate::random() % 3));
    choice.stages = std::min(choice.stages, 2 + int(emulate::random() % 3));
    trial.begin(choice.split);
    WeightParams params;
    hopper::weight_shape(p, choice, params);
    const Args& a = trial.args;
    params.weight = a.w.data;
    params.x = a.x.data;
    params.partials = params.split > 1 ? trial.partials.data() : nullptr;
    for (int d = 0; d < 4; ++d) params.weight_stride[d] = int32_t(a.w.stride[d]);
    params.weight_quads = p.w_layout == Layout::nhwc;
    tensor_boxes.clear();
    const hopper::WeightMaps maps = hopper::weight_maps(params, a.x.data, a.y.data);
    const auto tile = hopper::kWeightTiles[choice.row];
    visit_row<hopper::kWeightTileCount>(choice.row, [&](auto row) {
      emulate::run_grid(hopper::weight_combinations(params) * params.split,
                        hopper::weight_threads(tile), hopper::weight_shared_bytes(params, tile),
                        [&] { hopper::convt2d_hopper_grad_weight_kernel<T, row>(params, maps); });
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
