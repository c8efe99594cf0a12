// From the way to multiply to its kernel.
#include "cuda/cuda_check.h"
#include "cuda/rows/rows_kernel.cuh"
#include "cuda/rows/rows_plan.h"
#include "cuda/shared_memory.h"
#include "cuda/strict_sums.h"

namespace convt2d::cuda::rows {
namespace {

template <class M>
void launch(const Params& params, cudaStream_t stream) {
  constexpr auto kernel = convt2d_rows_kernel<M>;
  allow_shared_memory<kernel>(params.shared_bytes);
  kernel<<<static_cast<unsigned>(blocks_of(params)), kThreads, params.shared_bytes, stream>>>(
      params);
  check_launch("convt2d_rows_kernel");
}

}  // namespace

void launch_kernel(const Problem& problem, const Params& params, void* stream) {
  const auto run = problem.dtype == DType::f16    ? launch<MmaF16>
                   : problem.dtype == DType::bf16 ? launch<MmaBF16>
                   : is_strict(problem)           ? launch<PlainF32>
                                                  : launch<MmaTF32>;
  run(params, static_cast<cudaStream_t>(stream));
}

}  // namespace convt2d::cuda::rows
