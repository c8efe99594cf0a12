// Forward and grad_input: from a row of kForms and a dtype to a kernel.
#include "cuda/cuda_check.h"
#include "cuda/mite/mite_gather.cuh"
#include "cuda/mite/mite_launch.h"
#include "cuda/visit_row.h"

namespace convt2d::cuda::mite {

void launch_gather(const Problem& problem, int row, const GatherParams& params, void* stream) {
  visit_dtype(problem.dtype, [&](auto element) {
    using T = decltype(element);
    if constexpr (sizeof(T) <= 4) {
      visit_row<kFormCount>(row, [&](auto index) {
        constexpr Form form = kForms[decltype(index)::value];
        convt2d_mite_gather_kernel<T, form.runs, form.run>
            <<<static_cast<unsigned>(params.blocks), kThreads, params.shared_bytes,
               static_cast<cudaStream_t>(stream)>>>(params);
      });
    }
  });
  check_launch("convt2d_mite_gather_kernel");
}

}  // namespace convt2d::cuda::mite
