// The slide kernel on a CPU, to the bit, in random schedules.
//
//   emulate_slide CASES TYPE SEED PLANS [NAME]     TYPE: fp16, bf16
//
// As emulate.cpp does for hopper: PLANS plans of each case at random in either direction, on
// integers.
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>

namespace convt2d::cuda::slide {
alignas(1024) unsigned char smem[232 * 1024];  // the kernel declares it extern
}

#include "cuda/slide/slide_kernel.cuh"
#include "cuda/slide/slide_plan.h"
#include "gather_trial.h"

namespace {

using namespace convt2d;
using namespace convt2d::cuda;

template <class T, int... ROWS>
void run(int row, const slide::Params& params, const CUtensorMap& map,
         std::integer_sequence<int, ROWS...>) {
  const std::function<void()> kernels[] = {
      [&] { slide::convt2d_slide_kernel<T, ROWS>(params, map); }...};
  emulate::kernel = kernels[row];
  emulate::shared_bytes = params.shared_bytes;
  emulate::block_dim.x = slide::kThreads;
  for (int64_t block = 0; block < slide::blocks_of(params); ++block)
    emulate::run_block(uint32_t(block));
}

template <class T>
bool check(const Case& one, int plans) {
  const Direction direction = emulate::random() % 3 ? Direction::fwd : Direction::grad_input;
  return try_plans<T>(one, direction, Precision::ieee, plans, slide::plans,
                      [](const Problem& problem, Plan plan, const Args& args) {
                        int32_t &stages = plan.detail[2], &walkers = plan.detail[3];
                        stages = std::min(stages, 2 + int(emulate::random() % 3));
                        walkers = std::min(walkers, 1 + int(emulate::random() % 3));
                        const slide::Params params = slide::params_of(problem, plan, args);
                        run<T>(plan.row, params, slide::map_of(params),
                               std::make_integer_sequence<int, slide::kTileCount>());
                      });
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 5) return std::printf("see the head of %s\n", __FILE__), 2;
  emulate::smem = slide::smem;
  emulate::random.seed(std::atoi(arguments[3]));
  const std::string type = arguments[2];
  const int plans = std::atoi(arguments[4]);
  return check_cases(arguments[1], Layout::nchw, count > 5 ? arguments[5] : "", [&](Case one) {
    if (emulate::random() % 4 == 0) one.problem.w_layout = Layout::nhwc;
    return type == "fp16" ? check<__half>(one, plans) : check<__nv_bfloat16>(one, plans);
  });
}
