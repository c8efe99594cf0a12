// igemm's grad_weight on a CPU: indices, fragments, the order of barriers, the NaN rule.
//
//   emulate_weight CASES TYPE LAYOUTS SEED PLANS [NAME]     TYPE: fp16, bf16, tf32
//
// LAYOUTS: of x and dY, as nchw-nhwc. Of each case the best plan of every tile and PLANS at random run on
// integers, and again with an infinity or a NaN in places; outputs hold NaN before, shared memory NaN or numbers.
#include <algorithm>
#include <cstdio>
#include <string>

namespace convt2d::cuda::igemm {
alignas(1024) unsigned char smem[232 * 1024];  // the kernel declares it extern
}

#include "core/phases.h"
#include "cuda/cuda_families.h"
#include "cuda/igemm/igemm_grad_weight.cuh"
#include "cuda/igemm/igemm_weight_plan.h"
#include "cuda/visit_row.h"
#include "cuda/weight_sum.h"
#include "fibers.h"
#include "weight_trial.h"

namespace {

using igemm::WeightParams;

template <class M>
bool check(const Case& one, int random_plans) {
  using T = typename M::Element;
  WeightTrial<T> trial(one);
  const Problem& p = trial.problem;
  const Device device = invented_device("h200");
  std::string reason;
  auto candidates = igemm::weight_candidates(p, device, reason);
  std::vector<Plan> plans;
  for (size_t i : worth_running(candidates, random_plans,
                                [](const igemm::WeightChoice& choice) { return choice.row; })) {
    plans.push_back(igemm::weight_plan_of(p, device, candidates[i]));
    plans.back().note.insert(0, "row " + std::to_string(plans.back().row) + ", ");
  }
  return trial.passes(plans, candidates.size(), reason, [&](const Plan& plan) {
    igemm::WeightChoice choice = igemm::weight_choice_of(plan);
    choice.stages = 2 + int(emulate::random() % 3);
    trial.begin(choice.split);
    WeightParams params;
    igemm::weight_shape(p, choice, params);
    if (emulate::random() % 2) params.turn_tiles = 2;
    const Args& a = trial.args;
    params.x = a.x.data, params.y = a.y.data, params.weight = a.w.data;
    params.partials = igemm::writes_partials(params) ? trial.partials.data() : nullptr;
    for (int d = 0; d < 4; ++d) {
      params.x_stride[d] = int32_t(a.x.stride[d]);
      params.y_stride[d] = int32_t(a.y.stride[d]);
      params.weight_stride[d] = int32_t(a.w.stride[d]);
    }
    visit_row<igemm::weight_tile_count(sizeof(T))>(choice.row, [&](auto row) {
      emulate::run_grid(igemm::weight_combinations(params) * params.split,
                        32 * (params.warps_m * params.warps_n + params.producers),
                        igemm::weight_map(params, sizeof(T)).total,
                        [&] { igemm::convt2d_igemm_grad_weight_kernel<M, row>(params); });
    });
    return params.partials ? params.split : 0;
  });
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 6) return std::printf("see the head of %s\n", __FILE__), 2;
  emulate::smem = igemm::smem;
  const std::string type = arguments[2], layouts = arguments[3];
  const Layout x_layout = layouts.substr(0, 4) == "nhwc" ? Layout::nhwc : Layout::nchw;
  const Layout y_layout = layouts.substr(5) == "nhwc" ? Layout::nhwc : Layout::nchw;
  emulate::random.seed(std::atoi(arguments[4]));
  const int plans = std::atoi(arguments[5]);
  return check_cases(arguments[1], x_layout, count > 6 ? arguments[6] : "", [&](Case one) {
    one.problem.y_layout = y_layout;
    return type == "fp16"   ? check<MmaF16>(one, plans)
           : type == "bf16" ? check<MmaBF16>(one, plans)
                            : check<MmaTF32>(one, plans);
  });
}
