// The ticking kernel on a CPU, to the bit, in random schedules.
//
//   emulate_ticking CASES TYPE SEED PLANS [NAME]     TYPE: fp16, bf16, tf32, fp32
//
// As emulate.cpp does for hopper: PLANS plans of each case at random, on integers; and with some that are no numbers.
#include <string>

namespace convt2d::cuda::ticking {
alignas(1024) unsigned char smem[232 * 1024];  // the kernel declares it extern
}

#include "cuda/cuda_families.h"
#include "cuda/ticking/ticking_kernel.cuh"
#include "cuda/ticking/ticking_plan.h"
#include "cuda/visit_row.h"
#include "fibers.h"
#include "gather_trial.h"

namespace {

using namespace convt2d;
using namespace convt2d::cuda;

template <class M>
void run(int row, const ticking::Params& params) {
  visit_row<ticking::tiles_of(sizeof(typename M::Element))>(row, [&](auto index) {
    constexpr int kTaps = ticking::kTiles[decltype(index)::value];
    emulate::run_grid(ticking::blocks_of(params), (ticking::consumers(params) + 1) * 32,
                      params.shared_bytes,
                      [&] { ticking::convt2d_ticking_kernel<M, kTaps>(params); });
  });
}

template <class M>
bool check(const Case& one, Precision precision, int most) {
  bool good = true;
  for (const bool finite : {true, false}) {
    GatherTrial<typename M::Element> trial(one, Direction::grad_input, precision, finite);
    Device device = invented_device("h200");
    device.sm_count = emulate::random() % 2 ? 3 : 20;  // so that blocks walk several strips
    std::string reason;
    const auto all = ticking::plans(trial.problem, device, reason);
    good &= trial.passes(trial.some(all, most, reason), [&](Plan plan) {
      int32_t& stages = plan.detail[3];
      stages = std::min(stages, 2 + int(emulate::random() % 3));
      run<M>(plan.row, ticking::params_of(trial.problem, plan, trial.args));
    });
  }
  return good;
}

}  // namespace

int main(int count, char** arguments) {
  emulate::smem = ticking::smem;
  return check_typed(count, arguments, __FILE__,
                     [](const std::string& type, const Case& one, int plans) {
                       return type == "fp16"   ? check<MmaF16>(one, Precision::tf32, plans)
                              : type == "bf16" ? check<MmaBF16>(one, Precision::tf32, plans)
                              : type == "tf32" ? check<MmaTF32>(one, Precision::tf32, plans)
                                               : check<MmaF32x3>(one, Precision::ieee, plans);
                     });
}
