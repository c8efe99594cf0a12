// The hopper kernel on a CPU, to the bit, in random schedules: what a machine without a GPU can know of it.
//
//   emulate CASES TYPE LAYOUT SEED [NAME]     TYPE: fp16, bf16, tf32, fp32; LAYOUT: nchw, nhwc
//
// With SHOW=1 in the environment, every plan is named before it runs, and barriers are shown when one fails.
// CASES has lines as kernel_bench.cu reads them. Of each case, forward and grad_input, the best plan of every
// tile and two at random run on integers, with NaN in outputs before, and NaN or numbers in shared memory.
// A thread is a fiber; warps run in a random order and at uneven speeds. What is found: wrong indices,
// unwritten or misaligned outputs, reads beyond shared memory, protocols that overwrite or never end.
// What is not: ordinary stores that the tensor cores would see too late, registers, speed.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <tuple>
#include <type_traits>

namespace convt2d::cuda::hopper {
alignas(1024) unsigned char smem[232 * 1024];  // the kernel declares it extern
}

#include "core/phases.h"
#include "cuda/cuda_families.h"
#include "cuda/gather_params.h"
#include "cuda/hopper/hopper_gather.cuh"
#include "cuda/hopper/hopper_maps.h"
#include "cuda/hopper/hopper_plan.h"
#include "cuda/visit_row.h"
#include "fibers.h"
#include "gather_trial.h"

namespace {

using namespace convt2d;
using namespace convt2d::cuda;

template <class M>
bool check(const Case& one, Direction direction) {
  using T = typename M::Element;
  GatherTrial<T> trial(one, direction, M::kSplit ? Precision::ieee : Precision::tf32);
  std::string reason;
  auto candidates = hopper::gather_candidates(trial.problem, invented_device("h200"), reason);
  // Of each tile the best with weights that stay, and that stream; with groups that lead, and without; by teams.
  std::vector<Plan> plans;
  for (size_t i : worth_running(candidates, 2, [](const hopper::GatherChoice& choice) {
         return std::tuple{choice.row, choice.weight_stages > 0, choice.lead > 0, choice.teams};
       }))
    plans.push_back(hopper::plan_of(candidates[i]));
  // The first rows are for strict fp32, the last ones for 16-bit numbers.
  constexpr int kFirst = M::kSplit ? 0 : hopper::kStrictTiles,
                kEnd = M::kSplit        ? hopper::kStrictTiles
                       : sizeof(T) == 4 ? hopper::kTileCount - hopper::kColumnTiles
                                        : hopper::kTileCount;
  return trial.passes(plans, [&](const Plan& plan) {
    const hopper::TileRow tile = hopper::kTiles[plan.row];
    hopper::GatherParams params;
    hopper::gather_shape(trial.problem, hopper::choice_of(plan), params);
    hopper::set_walkers(plan, params);
    for (int32_t& walkers : params.walkers)
      walkers = std::min(walkers, 3);  // so that blocks have several tiles
    set_operands(trial.problem, hopper::as_walked(trial.problem, trial.args), params);
    const hopper::TensorMaps maps = hopper::maps_of(params, tile);
    visit_row<kEnd - kFirst>(plan.row - kFirst, [&](auto row) {
      emulate::run_grid(
          hopper::blocks_of(params), hopper::threads(tile), hopper::shared_map(params, tile).total,
          [&] {
            constexpr bool kApart = hopper::brought_apart<M>(hopper::kTiles[kFirst + row]);
            if (kApart && params.brought_pieces)
              hopper::convt2d_hopper_gather_kernel<M, kFirst + row, kApart>(params, maps);
            else
              hopper::convt2d_hopper_gather_kernel<M, kFirst + row, false>(params, maps);
          });
    });
  });
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 5) return std::printf("see the head of %s\n", __FILE__), 2;
  const std::string type = arguments[2];
  const Layout layout = std::string(arguments[3]) == "nhwc" ? Layout::nhwc : Layout::nchw;
  emulate::smem = hopper::smem;
  emulate::random.seed(std::atoi(arguments[4]));
  return check_cases(arguments[1], layout, count > 5 ? arguments[5] : "", [&](const Case& one) {
    bool good = true;
    for (Direction direction : {Direction::fwd, Direction::grad_input})
      good &= type == "fp16"   ? check<MmaF16>(one, direction)
              : type == "bf16" ? check<MmaBF16>(one, direction)
              : type == "fp32" ? check<MmaF32x3>(one, direction)
                               : check<MmaTF32>(one, direction);
    return good;
  });
}
