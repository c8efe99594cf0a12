// plain on a CPU, to the bit, in random schedules.
//
//   emulate_plain CASES TYPE PASS SEED PLANS [NAME]     TYPE: fp16, bf16; PASS: fwd, grad_input, grad_weight
//
// As emulate.cpp does for hopper, and emulate_weight.cpp for igemm: PLANS plans of each case at random, on integers.
#include <cstdlib>
#include <string>

namespace convt2d::cuda::plain {
alignas(1024) unsigned char smem[232 * 1024];  // the kernels declare it extern
}

#include "cuda/cuda_families.h"
#include "cuda/plain/plain_kernel.cuh"
#include "cuda/plain/plain_plan.h"
#include "cuda/plain/plain_weight_kernel.cuh"
#include "cuda/visit_row.h"
#include "fibers.h"
#include "gather_trial.h"
#include "weight_trial.h"

namespace {

using namespace convt2d;
using namespace convt2d::cuda;

// With fewer stages and blocks than there is room for.
void reduce(Plan& plan) {
  plan.detail[0] = std::min(plan.detail[0], 2 + int(emulate::random() % 2));
  plan.detail[2] = std::min(plan.detail[2], 1 + int(emulate::random() % 3));
}

template <class T, bool FORWARD>
bool check(const Case& one, int most) {
  GatherTrial<T> trial(one, FORWARD ? Direction::fwd : Direction::grad_input, Precision::ieee,
                       emulate::random() % 2);
  const Problem& p = trial.problem;
  std::string reason;
  std::vector<Plan> plans = plain::plans(p, invented_device("h200"), reason);
  for (Plan& plan : plans) reduce(plan);
  return trial.passes(trial.some(plans, most, reason), [&](const Plan& plan) {
    const plain::Params params = plain::params_of(p, plan, trial.args);
    const plain::Maps maps = plain::maps_of(p, trial.args);
    visit_row<plain::kTileCount>(plan.row, [&](auto row) {
      emulate::run_grid(plain::blocks_of(params), plain::kThreads, params.shared_bytes,
                        [&] { plain::convt2d_plain_kernel<T, row, FORWARD>(params, maps); });
    });
  });
}

// Partial sums as WeightTrial wants them: of one tap they are.
template <class T>
bool check_weight(const Case& one, int most) {
  WeightTrial<T> trial(one, Precision::ieee);
  const Problem& p = trial.problem;
  std::string reason;
  const std::vector<Plan> all = plain::plans(p, invented_device("h200"), reason);
  return trial.passes(some_of(all, most), all.size(), reason, [&](Plan plan) {
    // Room for the sums that are added up.
    plan.detail[0] = std::min(plan.detail[0], 4 + 2 * int(emulate::random() % 2));
    trial.begin(plan.split);
    trial.args.workspace = trial.partials.data();
    const plain::WeightParams params = plain::weight_params_of(p, plan, trial.args);
    const plain::Maps maps = plain::maps_of(p, trial.args);
    visit_row<plain::kWeightTileCount>(plan.row, [&](auto row) {
      constexpr int kWidth = plain::kWeightWidths[row];
      emulate::run_grid(plain::blocks_of(params), plain::kThreads,
                        plain::shared_bytes(params, kWidth),
                        [&] { plain::convt2d_plain_grad_weight_kernel<T, kWidth>(params, maps); });
    });
    return params.partials ? plan.split : 0;
  });
}

template <class T>
bool check(const Case& one, const std::string& pass, int most) {
  return pass == "fwd"          ? check<T, true>(one, most)
         : pass == "grad_input" ? check<T, false>(one, most)
                                : check_weight<T>(one, most);
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 6) return std::printf("see the head of %s\n", __FILE__), 2;
  emulate::smem = plain::smem;
  const std::string type = arguments[2], pass = arguments[3];
  emulate::random.seed(std::atoi(arguments[4]));
  const int plans = std::atoi(arguments[5]);
  return check_cases(arguments[1], Layout::nchw, count > 6 ? arguments[6] : "", [&](Case one) {
    return type == "fp16" ? check<__half>(one, pass, plans)
                          : check<__nv_bfloat16>(one, pass, plans);
  });
}
