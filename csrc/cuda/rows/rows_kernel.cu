// From the layout and the way to multiply to a kernel.
#include "cuda/cuda_check.h"
#include "cuda/rows/rows_kernel.cuh"
#include "cuda/rows/rows_pixels.cuh"
#include "cuda/rows/rows_plan.h"
#include "cuda/shared_memory.h"
#include "cuda/strict_sums.h"

namespace convt2d::cuda::rows {
namespace {

template <class M>
void launch(const Params& params, cudaStream_t stream) {
  constexpr auto kernel = convt2d_rows_kernel<M>;
  allow_shared_memory<kernel>(params.shared_bytes);
  kernel<<<params.walkers, kThreads, params.shared_bytes, stream>>>(params);
  check_launch("convt2d_rows_kernel");
}

template <class M>
void launch_pixels(const Params& params, cudaStream_t stream) {
  constexpr auto kernel = convt2d_rows_pixels_kernel<M>;
  allow_shared_memory<kernel>(params.shared_bytes);
  kernel<<<params.walkers, kThreads, params.shared_bytes, stream>>>(params);
  check_launch("convt2d_rows_pixels_kernel");
}

}  // namespace

void launch_kernel(const Problem& problem, const Params& params, void* stream) {
  const bool pixels = is_pixels(problem);
  const auto run = problem.dtype == DType::f16 ? pixels ? launch_pixels<MmaF16> : launch<MmaF16>
                   : problem.dtype == DType::bf16
                       ? pixels ? launch_pixels<MmaBF16> : launch<MmaBF16>
                   : pixels             ? launch_pixels<MmaTF32>
                   : is_strict(problem) ? launch<MmaF32x3>
                                        : launch<MmaTF32>;
  run(params, static_cast<cudaStream_t>(stream));
}

}  // namespace convt2d::cuda::rows
