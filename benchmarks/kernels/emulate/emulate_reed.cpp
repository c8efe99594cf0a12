// reed on a CPU, to the bit, in random schedules.
//
//   emulate_reed CASES TYPE SEED PLANS [NAME]     TYPE: fp16, bf16, tf32, fp32; fp16:nhwc and so on
//
// As emulate.cpp does for hopper: PLANS plans of each case at random (LAPPED=1: lapped tiles only, BROAD=1: broad ones), on integers, and again with an infinity or a NaN in
// places.
#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string>

namespace convt2d::cuda::reed {
alignas(1024) unsigned char smem[232 * 1024];  // the kernel declares it extern
}

#include "cuda/cuda_families.h"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/reed/reed_broad.cuh"
#include "cuda/reed/reed_broad_plan.h"
#include "cuda/reed/reed_held.cuh"
#include "cuda/reed/reed_held_plan.h"
#include "cuda/reed/reed_kernel.cuh"
#include "cuda/reed/reed_lapped.cuh"
#include "cuda/reed/reed_lapped_plan.h"
#include "cuda/reed/reed_plan.h"
#include "cuda/reed/reed_wide.cuh"
#include "cuda/visit_row.h"
#include "fibers.h"
#include "gather_trial.h"

namespace {

// How many numbers of y are not what they should be with an infinity or a NaN in x and another one in w; `run` writes y.
template <class T, class Run>
int64_t wrong_when_spoiled(const GatherTrial<T>& trial, Run&& run) {
  const Problem& p = trial.problem;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float odd[] = {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()};
  T* const spoiled[] = {static_cast<T*>(trial.args.x.data), static_cast<T*>(trial.args.w.data)};
  const int64_t size[] = {p.batch * p.in_channels * p.h.in * p.w.in,
                          p.in_channels * p.group_out() * p.h.kernel * p.w.kernel};
  const int64_t image = p.h.out * p.w.out, outputs = p.batch * p.out_channels * image;
  int64_t at[2];
  T before[2];
  for (int i = 0; i < 2; ++i) {
    at[i] = emulate::random() % size[i];
    before[i] = spoiled[i][at[i]];
    spoiled[i][at[i]] = Numeric<T>::narrow(odd[emulate::random() % 3]);
  }
  std::vector<float> expected(outputs);
  products(p, trial.args, [&](int64_t i, int64_t j, int64_t k) {
    expected[k] += Numeric<T>::widen(spoiled[0][i]) * Numeric<T>::widen(spoiled[1][j]);
  });
  T* const y = static_cast<T*>(trial.args.y.data);
  std::memset(y, 0xff, outputs * sizeof(T));
  run();
  int64_t differ = 0;
  for (int64_t k = 0; k < outputs; ++k) {
    float want = expected[k];
    if (p.has_bias)
      want += Numeric<T>::widen(static_cast<const T*>(
          trial.args
              .bias)[p.y_layout == Layout::nhwc ? k % p.out_channels : k / image % p.out_channels]);
    want = Numeric<T>::widen(Numeric<T>::narrow(want));
    const float got = Numeric<T>::widen(y[k]);
    differ += !(got == want || (got != got && want != want));
  }
  for (int i = 0; i < 2; ++i) spoiled[i][at[i]] = before[i];
  return differ;
}

template <class M, int ROWS>
bool check(const Case& one, Precision precision, int most) {
  using T = typename M::Element;
  GatherTrial<T> trial(one, Direction::fwd, precision);
  std::string reason;
  std::vector<Plan> all = reed::plans(trial.problem, invented_device("h200"), reason);
  if (std::getenv("LAPPED"))
    all.erase(std::remove_if(all.begin(), all.end(),
                             [](const Plan& plan) { return plan.row != reed::kLappedRow; }),
              all.end());
  if (std::getenv("BROAD"))
    all.erase(std::remove_if(all.begin(), all.end(),
                             [](const Plan& plan) { return plan.row != reed::kBroadRow; }),
              all.end());
  int64_t differ = 0;
  const bool good = trial.passes(trial.some(all, most, reason), [&](Plan plan) {
    const auto run = [&] {
      plan.detail[0] = std::min(plan.detail[0], 2 + int(emulate::random() % 3));
      if (plan.row == reed::kLappedRow) {
        if constexpr (!M::kSplit) {
          const reed::Lapped lapped = reed::lapped_of(trial.problem, trial.args);
          const CUtensorMap source = reed::map_of_lapped(trial.problem, trial.args),
                            weights = reed::map_of_lapped_weights(trial.problem, trial.args);
          emulate::run_grid(reed::blocks_of(lapped), reed::kLappedThreads, reed::kLappedBytes, [&] {
            trial.problem.y_layout == Layout::nhwc
                ? reed::convt2d_reed_lapped_kernel<M, true>(lapped, source, weights)
                : reed::convt2d_reed_lapped_kernel<M, false>(lapped, source, weights);
          });
        }
        return;
      }
      if (plan.row == reed::kBroadRow) {
        if constexpr (sizeof(T) == 2) {
          plan.detail[2] = 1 + emulate::random() % plan.detail[2];
          const reed::Held held = reed::held_of(trial.problem, plan, trial.args);
          const CUtensorMap weights = reed::map_of_broad_weights(trial.problem, held);
          emulate::run_grid(
              reed::blocks_of(held), reed::broad_threads(held.tiles * 16 / reed::kBroadPositions),
              reed::broad_bytes(held), [&] { reed::convt2d_reed_broad_kernel<M>(held, weights); });
        }
        return;
      }
      if (plan.row == reed::kWideRow) {
        plan.detail[2] = 1 + emulate::random() % plan.detail[2];
        const reed::Held held = reed::held_of(trial.problem, plan, trial.args);
        emulate::run_grid(reed::blocks_of(held), reed::kHeldThreads, reed::wide_bytes(held),
                          [&] { reed::convt2d_reed_wide_kernel<128>(held); });
        return;
      }
      if (plan.row == reed::kHeldRow) {
        plan.detail[2] = 1 + emulate::random() % plan.detail[2];
        const reed::Held held = reed::held_of(trial.problem, plan, trial.args);
        visit_row<2>(reed::warp_tiles(held.tiles) - reed::kLeastHeld, [&](auto index) {
          emulate::run_grid(
              reed::blocks_of(held), reed::kHeldThreads, reed::shared_bytes(held, sizeof(T)),
              [&] { reed::convt2d_reed_held_kernel<M, index + reed::kLeastHeld>(held); });
        });
        return;
      }
      const reed::Params params = reed::params_of(trial.problem, plan, trial.args);
      visit_row<ROWS>(plan.row, [&](auto row) {
        emulate::run_grid(reed::blocks_of(params), reed::threads_of(reed::kTiles[row]),
                          reed::shared_bytes(params, reed::kTiles[row], sizeof(T)),
                          [&] { reed::convt2d_reed_fwd_kernel<M, row>(params); });
      });
    };
    if (const int64_t here = wrong_when_spoiled(trial, run)) {
      std::printf("WRONG when not finite, %lld: %s\n", static_cast<long long>(here),
                  plan.note.c_str());
      differ += here;
    }
    std::memset(trial.args.y.data, 0xff,
                trial.problem.batch * trial.problem.out_channels * trial.problem.h.out *
                    trial.problem.w.out * sizeof(T));
    run();
  });
  return good && differ == 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 5) return std::printf("see the head of %s\n", __FILE__), 2;
  emulate::smem = reed::smem;
  std::string type = arguments[2];
  emulate::random.seed(std::atoi(arguments[3]));
  const int plans = std::atoi(arguments[4]);
  const size_t colon = std::min(type.find(':'), type.size());
  const bool pixels = type.substr(colon) == ":nhwc";
  type.resize(colon);
  return check_cases(
      arguments[1], pixels ? Layout::nhwc : Layout::nchw, count > 5 ? arguments[5] : "",
      [&](Case one) {
        using reed::kStrictTiles, reed::kTileCount;
        // One plan of four has x the other way round.
        if (emulate::random() % 4 == 0 && one.problem.groups == 1)
          one.problem.x_layout = pixels ? Layout::nchw : Layout::nhwc;
        return type == "fp16"   ? check<MmaF16, kTileCount>(one, Precision::tf32, plans)
               : type == "bf16" ? check<MmaBF16, kTileCount>(one, Precision::tf32, plans)
               : type == "tf32" ? check<MmaTF32, kTileCount>(one, Precision::tf32, plans)
                                : check<MmaF32x3, kStrictTiles>(one, Precision::ieee, plans);
      });
}
