// grad_weight: from a row of kSums and a dtype to a kernel.
#include "cuda/cuda_check.h"
#include "cuda/mite/mite_launch.h"
#include "cuda/mite/mite_weight.cuh"
#include "cuda/visit_row.h"

namespace convt2d::cuda::mite {

void launch_weight(const Problem& problem, int row, const WeightParams& params, void* stream) {
  visit_dtype(problem.dtype, [&](auto element) {
    using T = decltype(element);
    if constexpr (sizeof(T) <= 4) {
      visit_row<kSumsCount>(row, [&](auto index) {
        constexpr Sums sums = kSums[decltype(index)::value];
        convt2d_mite_grad_weight_kernel<T, sums.channels, sums.taps>
            <<<static_cast<unsigned>(params.blocks), kWeightThreads, params.shared_bytes,
               static_cast<cudaStream_t>(stream)>>>(params);
      });
    }
  });
  check_launch("convt2d_mite_grad_weight_kernel");
}

}  // namespace convt2d::cuda::mite
