// The rows kernel on a CPU, to the bit, in random schedules.
//
//   emulate_rows CASES TYPE SEED PLANS [NAME]     TYPE: fp16, bf16, tf32, fp32; fp16:nhwc and so on
//
// As emulate.cpp does for hopper: PLANS plans of each case at random, on integers.
#include <cstdlib>
#include <string>

namespace convt2d::cuda::rows {
alignas(1024) unsigned char smem[232 * 1024];  // the kernel declares it extern
}

#include "cuda/cuda_families.h"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/rows/rows_kernel.cuh"
#include "cuda/rows/rows_pixels.cuh"
#include "cuda/rows/rows_plan.h"
#include "fibers.h"
#include "gather_trial.h"

namespace convt2d::cuda::rows {
void launch_kernel(const Problem&, const Params&, void*) {}  // nobody launches here
}  // namespace convt2d::cuda::rows

namespace {

using namespace convt2d;
using namespace convt2d::cuda;

template <class M>
void run(const Problem& problem, const rows::Params& params) {
  if constexpr (!M::kSplit)
    if (rows::is_pixels(problem)) return rows::convt2d_rows_pixels_kernel<M>(params);
  rows::convt2d_rows_kernel<M>(params);
}

template <class M>
bool check(const Case& one, int most) {
  GatherTrial<typename M::Element> trial(one, Direction::fwd,
                                         M::kSplit ? Precision::ieee : Precision::tf32);
  std::string reason;
  Device device = invented_device("h200");
  if (emulate::random() % 2) device.sm_count = 1;  // so that blocks walk several tiles
  std::vector<Plan> plans = rows::plans(trial.problem, device, reason);
  return trial.passes(trial.some(plans, most, reason), [&](const Plan& plan) {
    const rows::Params params = rows::params_of(trial.problem, plan, trial.args);
    emulate::run_grid(params.walkers, rows::kThreads, params.shared_bytes,
                      [&] { run<M>(trial.problem, params); });
  });
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 5) return std::printf("see the head of %s\n", __FILE__), 2;
  emulate::smem = rows::smem;
  emulate::random.seed(std::atoi(arguments[3]));
  std::string type = arguments[2];
  const size_t colon = type.find(':');
  const bool pixels = type.substr(std::min(colon, type.size())) == ":nhwc";
  type.resize(std::min(colon, type.size()));
  const int plans = std::atoi(arguments[4]);
  return check_cases(arguments[1], pixels ? Layout::nhwc : Layout::nchw,
                     count > 5 ? arguments[5] : "", [&](Case one) {
                       if (emulate::random() % 4 == 0)
                         one.problem.w_layout = pixels ? Layout::nchw : Layout::nhwc;
                       return type == "fp16"   ? check<MmaF16>(one, plans)
                              : type == "bf16" ? check<MmaBF16>(one, plans)
                              : type == "tf32" ? check<MmaTF32>(one, plans)
                                               : check<MmaF32x3>(one, plans);
                     });
}
