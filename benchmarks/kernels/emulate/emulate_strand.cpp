// strand on a CPU, to the bit, in random schedules, the blocks of a cluster together.
//
//   emulate_strand CASES TYPE LAYOUT SEED PLANS [NAME]     TYPE: fp16, bf16, tf32, fp32; LAYOUT: nchw, nhwc
//
// PLANS plans of each case at random (WINDOWS=1, DENSE=1 or SPANS=1: of windows, dense rows or spans only), on integers, and again with an infinity or a NaN in places.
#include <algorithm>
#include <cstdlib>
#include <string>

namespace convt2d::cuda::strand {
alignas(1024) unsigned char smem[232 * 1024];  // the kernel declares it extern
}

#include "cuda/cuda_families.h"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/strand/strand_dense.cuh"
#include "cuda/strand/strand_kernel.cuh"
#include "cuda/strand/strand_plan.h"
#include "cuda/strand/strand_spans.cuh"
#include "cuda/strand/strand_windows.cuh"
#include "cuda/visit_row.h"
#include "fibers.h"
#include "gather_trial.h"

namespace {

template <class M, int ROWS>
bool check(const Case& one, Precision precision, int most) {
  using T = typename M::Element;
  bool good = true;
  for (const bool finite : {true, false}) {
    GatherTrial<T> trial(one, Direction::grad_input, precision, finite);
    std::string reason;
    std::vector<Plan> all = strand::plans(trial.problem, invented_device("h200"), reason);
    // Of windows or dense rows only, with as few stages as may be.
    const bool windows = std::getenv("WINDOWS"), dense = std::getenv("DENSE"),
               spans = std::getenv("SPANS");
    if (windows || dense || spans) {
      all.erase(std::remove_if(all.begin(), all.end(),
                               [&](const Plan& plan) {
                                 return plan.row == strand::kSpanRow      ? !spans
                                        : strand::dense_row_of(plan) >= 0 ? !dense
                                        : plan.row >= strand::kTileCount  ? !windows
                                                                          : true;
                               }),
                all.end());
      for (Plan& plan : all)
        plan.detail[1] = std::min(plan.detail[1], (spans ? 3 : 2) + int(emulate::random() % 4));
    }
    good &= trial.passes(trial.some(all, most, reason), [&](const Plan& plan) {
      if (plan.row == strand::kSpanRow) {
        if constexpr (!M::kSplit) {
          const auto params = strand::span_params_of(trial.problem, plan, trial.args);
          const auto source = strand::map_of_spans(trial.problem, params),
                     weights = strand::map_of_span_weights(trial.problem, params);
          emulate::run_grid(
              strand::span_tiles_of(params), params.groups * 128 + 32, params.shared_bytes,
              [&] {
                strand::span_pixels(trial.problem)
                    ? strand::convt2d_strand_spans_kernel<M, true>(params, source, weights)
                    : strand::convt2d_strand_spans_kernel<M, false>(params, source, weights);
              },
              params.ranks);
        }
        return;
      }
      if (const int dense = strand::dense_row_of(plan); dense >= 0) {
        const auto params = strand::dense_params_of(trial.problem, plan, trial.args);
        const auto source = strand::map_of_dense(trial.problem, params);
        visit_row<strand::kDenseTileCount>(dense, [&](auto row) {
          const auto weights = strand::map_of_dense_weights(
              trial.problem, params, strand::dense_tile(row, M::kSplit).columns);
          emulate::run_grid(
              strand::dense_tiles_of(params), strand::kDenseThreads, params.shared_bytes,
              [&] { strand::convt2d_strand_dense_kernel<M, row>(params, source, weights); },
              params.ranks);
        });
        return;
      }
      if (plan.row >= strand::kTileCount) {
        const auto params = strand::window_params_of(trial.problem, plan, trial.args);
        const auto source = strand::map_of_windows(trial.problem, params),
                   weights = strand::map_of_window_weights(trial.problem, params);
        visit_row<strand::kWindowTileCount>(plan.row - strand::kTileCount, [&](auto row) {
          emulate::run_grid(
              strand::window_tiles_of(params), strand::kWindowThreads, params.shared_bytes,
              [&] { strand::convt2d_strand_windows_kernel<M, row>(params, source, weights); },
              params.ranks);
        });
        return;
      }
      const strand::Params params = strand::params_of(trial.problem, plan, trial.args);
      visit_row<ROWS>(plan.row, [&](auto row) {
        emulate::run_grid(
            strand::tiles_of(params), strand::kThreads, strand::shared_bytes(strand::kTiles[row]),
            [&] { strand::convt2d_strand_kernel<M, row>(params); }, params.ranks);
      });
    });
    if (all.empty()) break;
  }
  return good;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 6) return std::printf("see the head of %s\n", __FILE__), 2;
  emulate::smem = strand::smem;
  const std::string type = arguments[2];
  const Layout layout = arguments[3] == std::string("nhwc") ? Layout::nhwc : Layout::nchw;
  emulate::random.seed(std::atoi(arguments[4]));
  const int plans = std::atoi(arguments[5]);
  return check_cases(arguments[1], layout, count > 6 ? arguments[6] : "", [&](const Case& one) {
    using strand::kStrictTiles, strand::kTileCount;
    return type == "fp16"   ? check<MmaF16, kTileCount>(one, Precision::tf32, plans)
           : type == "bf16" ? check<MmaBF16, kTileCount>(one, Precision::tf32, plans)
           : type == "tf32" ? check<MmaTF32, kTileCount>(one, Precision::tf32, plans)
                            : check<MmaF32x3, kStrictTiles>(one, Precision::ieee, plans);
  });
}
