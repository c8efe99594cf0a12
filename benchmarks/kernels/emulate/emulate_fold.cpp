// The fold kernel on a CPU, to the bit, in random schedules.
//
//   emulate_fold CASES TYPE SEED PLANS [NAME]     TYPE: fp16, bf16, tf32, fp32
//
// As emulate.cpp does for hopper: PLANS plans of each case at random, on integers.
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>

namespace convt2d::cuda::fold {
alignas(1024) unsigned char smem[232 * 1024];  // the kernel declares it extern
}

#include "cuda/fold/fold_kernel.cuh"
#include "cuda/fold/fold_plan.h"
#include "gather_trial.h"

namespace {

using namespace convt2d;
using namespace convt2d::cuda;

template <class T, int... ROWS>
void run(int row, const fold::Params& params, const fold::Maps& maps,
         std::integer_sequence<int, ROWS...>) {
  const std::function<void()> kernels[] = {
      [&] { fold::convt2d_fold_kernel<T, ROWS>(params, maps); }...};
  emulate::kernel = kernels[row];
  emulate::shared_bytes = params.shared_bytes;
  emulate::block_dim.x = fold::kThreads;
  for (int64_t block = 0; block < fold::blocks_of(params); ++block)
    emulate::run_block(uint32_t(block));
}

template <class T>
bool check(const Case& one, Precision precision, int plans) {
  constexpr int kRows = sizeof(T) == 4 ? fold::kTileCount : fold::kFirstStrict;
  return try_plans<T>(one, Direction::fwd, precision, plans, fold::plans,
                      [](const Problem& problem, Plan plan, const Args& args) {
                        int32_t &stages = plan.detail[2], &walkers = plan.detail[5];
                        stages = std::min(stages, 2 + int(emulate::random() % 3));
                        walkers = std::min(walkers, 1 + int(emulate::random() % 3));
                        const fold::Params params = fold::params_of(problem, plan, args);
                        run<T>(plan.row, params,
                               fold::maps_of(params, fold::kTiles[plan.row], args),
                               std::make_integer_sequence<int, kRows>());
                      });
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 5) return std::printf("see the head of %s\n", __FILE__), 2;
  emulate::smem = fold::smem;
  emulate::random.seed(std::atoi(arguments[3]));
  const std::string type = arguments[2];
  const int plans = std::atoi(arguments[4]);
  return check_cases(arguments[1], Layout::nchw, count > 5 ? arguments[5] : "", [&](Case one) {
    if (emulate::random() % 4 == 0) one.problem.w_layout = Layout::nhwc;
    if (type == "fp32") return check<float>(one, Precision::ieee, plans);
    if (type == "tf32") return check<float>(one, Precision::tf32, plans);
    return type == "fp16" ? check<__half>(one, Precision::ieee, plans)
                          : check<__nv_bfloat16>(one, Precision::ieee, plans);
  });
}
