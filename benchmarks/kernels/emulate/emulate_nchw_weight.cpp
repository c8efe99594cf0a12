// hopper's grad_weight of NCHW tensors on a CPU: indices, the ring of stages, the NaN rule, in random schedules.
//
//   emulate_nchw_weight CASES TYPE SEED PLANS [NAME]     TYPE: fp16, bf16, tf32, fp32
//
// As emulate_hopper_weight does for channels-last tensors.
#include <cstdio>
#include <string>

namespace convt2d::cuda::hopper {
alignas(1024) unsigned char smem[232 * 1024];  // the kernel declares it extern
}

#include "cuda/cuda_families.h"
#include "cuda/hopper/hopper_nchw_weight.cuh"
#include "cuda/visit_row.h"
#include "fibers.h"
#include "weight_trial.h"

namespace {

template <class T, bool STRICT = false>
bool check(const Case& one, int random_plans) {
  constexpr int kFirst = STRICT ? hopper::kNchwStrictTilesAt : 0,
                kEnd = STRICT ? hopper::kNchwWeightTileCount : hopper::kNchwStrictTilesAt;
  Problem p = one.problem;
  p.direction = Direction::grad_weight;
  p.dtype = dtype_of<T>;
  p.precision = STRICT ? Precision::ieee : Precision::tf32;
  p.has_bias = 0;
  const Device device = invented_device("h200");
  std::string reason;
  std::vector<Plan> plans = hopper::nchw_weight_plans(p, device, reason);
  if (plans.empty()) {
    std::printf("%s declined: %s\n", one.name.c_str(), reason.c_str());
    return true;
  }
  WeightTrial<T> trial(p, STRICT);
  std::shuffle(plans.begin(), plans.end(), emulate::random);
  int wrong = 0, tried = 0;
  for (Plan& plan : plans) {
    if (tried++ == random_plans) break;
    plan.split = std::min(plan.split, 1 + int(emulate::random() % 3));
    plan.detail[3] = std::min(plan.detail[3], 2 + int(emulate::random() % 3));  // stages
    if (std::getenv("SHOW")) std::printf("%s\n", plan.note.c_str());
    trial.begin(plan.split);
    trial.args.workspace = trial.partials.data();
    tensor_boxes.clear();
    const hopper::NchwWeightParams params = hopper::nchw_weight_params(p, plan, trial.args);
    const auto maps = hopper::nchw_weight_maps(params, plan.row, trial.args);
    visit_row<kEnd - kFirst>(plan.row - kFirst, [&](auto row) {
      emulate::run_grid(
          hopper::nchw_weight_blocks(params), hopper::kNchwThreads,
          hopper::nchw_shared_bytes(params, hopper::kNchwWeightTiles[plan.row]),
          [&] { hopper::convt2d_hopper_nchw_grad_weight_kernel<T, kFirst + row>(params, maps); });
    });
    const int64_t differ = trial.wrong(params.partials ? params.split : 0);
    if (differ == 0) continue;
    ++wrong;
    trial.report(one, differ, plan.note);
  }
  std::printf("%s %s: %d of %zu plans, %d wrong\n", one.name.c_str(), name(p.dtype),
              std::min(tried, random_plans), plans.size(), wrong);
  return wrong == 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 5) return std::printf("see the head of %s\n", __FILE__), 2;
  emulate::smem = hopper::smem;
  emulate::random.seed(std::atoi(arguments[3]));
  const std::string type = arguments[2];
  const int plans = std::atoi(arguments[4]);
  return check_cases(arguments[1], Layout::nchw, count > 5 ? arguments[5] : "", [&](Case one) {
    if (emulate::random() % 4 == 0) one.problem.w_layout = Layout::nhwc;
    return type == "bf16"   ? check<__nv_bfloat16>(one, plans)
           : type == "tf32" ? check<float>(one, plans)
           : type == "fp32" ? check<float, true>(one, plans)
                            : check<__half>(one, plans);
  });
}
