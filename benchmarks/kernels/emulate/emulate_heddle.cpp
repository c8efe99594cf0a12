// heddle on a CPU, to the bit, in random schedules.
//
//   emulate_heddle CASES TYPE SEED PLANS [NAME]     TYPE: tf32, fp32; input:fp16, bf16, tf32, fp32: grad_input
//
// As emulate_weight.cpp does for igemm: PLANS plans of each case at random, on integers, and again with an infinity or a
// NaN in places. NCHW is all there is.
#include <cstdlib>
#include <string>

namespace convt2d::cuda::heddle {
alignas(1024) unsigned char smem[232 * 1024];  // the kernel declares it extern
}

#include "cuda/cuda_families.h"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/heddle/heddle_input.cuh"
#include "cuda/heddle/heddle_kernel.cuh"
#include "cuda/heddle/heddle_plan.h"
#include "cuda/visit_row.h"
#include "fibers.h"
#include "gather_trial.h"
#include "weight_trial.h"

namespace {

template <class M, int FIRST, int END>
bool check(const Case& one, Precision precision, int most) {
  using T = typename M::Element;
  WeightTrial<T> trial(one, precision);
  const Problem& p = trial.problem;
  std::string reason;
  const std::vector<Plan> all = heddle::plans(p, invented_device("h200"), reason);
  return trial.passes(some_of(all, most), all.size(), reason, [&](Plan plan) {
    plan.detail[4] = std::min(plan.detail[4], 2 + int(emulate::random() % 3));  // stages
    if (emulate::random() % 2) plan.split = std::min(plan.split, 1 + int(emulate::random() % 3));
    trial.begin(plan.split);
    trial.args.workspace = trial.partials.data();
    const heddle::Params params = heddle::params_of(p, plan, trial.args);
    visit_row<END - FIRST>(plan.row - FIRST, [&](auto index) {
      constexpr int kRow = FIRST + decltype(index)::value;
      emulate::run_grid(heddle::blocks_of(params), heddle::threads(heddle::kTiles[kRow]),
                        heddle::shared_bytes(params, heddle::kTiles[kRow]),
                        [&] { heddle::convt2d_heddle_grad_weight_kernel<M, kRow>(params); });
    });
    return params.partials ? plan.split : 0;
  });
}

// grad_input on integers, and with an infinity or a NaN in places every other time.
template <class M>
bool check_input(const Case& one, Precision precision, int most) {
  using T = typename M::Element;
  GatherTrial<T> trial(one, Direction::grad_input, precision);
  const Problem& p = trial.problem;
  std::string reason;
  Device device = invented_device("h200");
  if (emulate::random() % 2) device.sm_count = 3;  // so that blocks walk several strips
  const std::vector<Plan> plans = trial.some(heddle::input_plans(p, device, reason), most, reason);
  T* const y = static_cast<T*>(trial.args.y.data);
  T* const w = static_cast<T*>(trial.args.w.data);
  const int64_t numbers = p.batch * p.out_channels * p.h.out * p.w.out;
  const int64_t weights = p.in_channels * p.group_out() * p.h.kernel * p.w.kernel;
  const auto run = [&](Plan plan) {
    plan.detail[3] = std::min(plan.detail[3], 2 + int(emulate::random() % 3));  // stages
    const heddle::InputParams params = heddle::input_params(p, plan, trial.args);
    emulate::run_grid(heddle::input_blocks(params), heddle::kInputThreads,
                      heddle::input_shared_bytes(params),
                      [&] { heddle::convt2d_heddle_grad_input_kernel<M>(params); });
  };
  bool good = trial.passes(plans, run);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float odd[] = {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()};
  for (const Plan& plan : plans) {
    y[emulate::random() % numbers] = Numeric<T>::narrow(odd[emulate::random() % 3]);
    if (emulate::random() % 2)
      w[emulate::random() % weights] = Numeric<T>::narrow(odd[emulate::random() % 3]);
    std::vector<float> expected(p.batch * p.in_channels * p.h.in * p.w.in);
    products(p, trial.args, [&](int64_t i, int64_t j, int64_t k) {
      expected[i] += Numeric<T>::widen(y[k]) * Numeric<T>::widen(w[j]);
    });
    T* const x = static_cast<T*>(trial.args.x.data);
    std::memset(x, 0x3c, expected.size() * sizeof(T));
    run(plan);
    int64_t wrong = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      const float got = Numeric<T>::widen(x[i]),
                  want = Numeric<T>::widen(Numeric<T>::narrow(expected[i]));
      wrong += got != want && (got == got || want == want);
    }
    if (wrong == 0) continue;
    good = false;
    std::printf("WRONG not finite, %lld: %s\n", static_cast<long long>(wrong), plan.note.c_str());
  }
  return good;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 5) return std::printf("see the head of %s\n", __FILE__), 2;
  emulate::smem = heddle::smem;
  const std::string type = arguments[2];
  emulate::random.seed(std::atoi(arguments[3]));
  const int plans = std::atoi(arguments[4]);
  return check_cases(arguments[1], Layout::nchw, count > 5 ? arguments[5] : "", [&](Case one) {
    if (type.rfind("input:", 0) == 0) {
      const std::string of = type.substr(6);
      return of == "fp16"   ? check_input<MmaF16>(one, Precision::tf32, plans)
             : of == "bf16" ? check_input<MmaBF16>(one, Precision::tf32, plans)
             : of == "tf32" ? check_input<MmaTF32>(one, Precision::tf32, plans)
                            : check_input<MmaF32x3>(one, Precision::ieee, plans);
    }
    using heddle::kFirstStrict, heddle::kTileCount;
    if (emulate::random() % 4 == 0) one.problem.w_layout = Layout::nhwc;
    return type == "tf32" ? check<MmaTF32, 0, kFirstStrict>(one, Precision::tf32, plans)
                          : check<MmaF32x3, kFirstStrict, kTileCount>(one, Precision::ieee, plans);
  });
}
