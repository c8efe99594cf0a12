// weft on a CPU: indices, both rings, the NaN rule, in random schedules.
//
//   emulate_weft CASES TYPE SEED PLANS [NAME]     TYPE: fp16, bf16
//
// Of each case the best plan of every tile or, of PLANS, the best and so many at random run on integers, and again with an infinity or a NaN
// in places; outputs hold NaN before, shared memory NaN or numbers. The second pass that adds up pieces and the bias gradient
// are not in it.
#include <cstdio>
#include <string>

namespace convt2d::cuda::weft {
alignas(1024) unsigned char smem[232 * 1024];  // the kernel declares it extern
}

#include "core/phases.h"
#include "cuda/cuda_families.h"
#include "cuda/visit_row.h"
#include "cuda/weft/weft_kernel.cuh"
#include "cuda/weft/weft_plan.h"
#include "cuda/weight_sum.h"
#include "fibers.h"
#include "weight_trial.h"

namespace {

template <class T>
bool check(const Case& one, int random_plans) {
  WeightTrial<T> trial(one);
  const Problem& p = trial.problem;
  std::string reason;
  const std::vector<Plan> all = weft::plans(p, invented_device("h200"), reason);
  struct Number {
    size_t choice;
    double predicted_us;
  };
  std::vector<Number> numbers;
  for (size_t i = 0; i < all.size(); ++i) numbers.push_back({i, all[i].predicted_us});
  std::vector<Plan> plans;
  for (size_t i : worth_running(numbers, random_plans, [&](size_t choice) {
         return random_plans > 0 ? 0 : all[choice].row;
       }))
    plans.push_back(all[numbers[i].choice]);
  return trial.passes(plans, all.size(), reason, [&](const Plan& plan) {
    Plan mine = plan;
    const auto prepared =
        std::make_shared<weft::Params>(*static_cast<const weft::Params*>(plan.prepared.get()));
    mine.prepared = prepared;
    prepared->weight.split = std::min(prepared->weight.split, 1 + int(emulate::random() % 3));
    // Fewer of either lie in the room of more.
    prepared->weight.stages = std::min(prepared->weight.stages, 2 + int(emulate::random() % 3));
    prepared->raw_stages = std::min(prepared->raw_stages, 2 + int(emulate::random() % 3));
    trial.begin(prepared->weight.split);
    trial.args.workspace = trial.partials.data();
    const weft::Params params = weft::params_of(p, mine, trial.args);
    tensor_boxes.clear();
    const weft::Maps maps = weft::maps_of(params, trial.args);
    visit_row<weft::kTileCount>(mine.row, [&](auto row) {
      constexpr int kRow = weft::kRows[decltype(row)::value];
      constexpr auto tile = weft::kWeightTiles[kRow];
      emulate::run_grid(weft::blocks_of(params), hopper::weight_threads(tile),
                        weft::shared_bytes(params, tile),
                        [&] { weft::convt2d_weft_grad_weight_kernel<T, kRow>(params, maps); });
    });
    return params.weight.partials ? params.weight.split : 0;
  });
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 5) return std::printf("see the head of %s\n", __FILE__), 2;
  emulate::smem = weft::smem;
  emulate::random.seed(std::atoi(arguments[3]));
  const std::string type = arguments[2];
  const int plans = std::atoi(arguments[4]);
  return check_cases(arguments[1], Layout::nchw, count > 5 ? arguments[5] : "", [&](Case one) {
    if (emulate::random() % 4 == 0) one.problem.w_layout = Layout::nhwc;
    return type == "bf16" ? check<__nv_bfloat16>(one, plans) : check<__half>(one, plans);
  });
}
