// From the type and a Plan's row to a kernel.
#include "cuda/cuda_check.h"
#include "cuda/shared_memory.h"
#include "cuda/strict_sums.h"
#include "cuda/ticking/ticking_kernel.cuh"
#include "cuda/ticking/ticking_launch.h"
#include "cuda/ticking/ticking_plan.h"
#include "cuda/visit_row.h"

namespace convt2d::cuda::ticking {
namespace {

template <class M>
void run(int row, const Params& params, void* stream) {
  visit_row<tiles_of(sizeof(typename M::Element))>(row, [&](auto index) {
    constexpr auto kernel = convt2d_ticking_kernel<M, kTiles[decltype(index)::value]>;
    allow_shared_memory<kernel>(params.shared_bytes);
    kernel<<<static_cast<unsigned>(blocks_of(params)), (consumers(params) + 1) * 32,
             params.shared_bytes, static_cast<cudaStream_t>(stream)>>>(params);
    check_launch("convt2d_ticking_kernel");
  });
}

}  // namespace

void launch_kernel(const Problem& problem, int row, const Params& params, void* stream) {
  const auto of_type = problem.dtype == DType::f16    ? run<MmaF16>
                       : problem.dtype == DType::bf16 ? run<MmaBF16>
                       : is_strict(problem)           ? run<MmaF32x3>
                                                      : run<MmaTF32>;
  of_type(row, params, stream);
}

}  // namespace convt2d::cuda::ticking
