#include "cuda/narrow/narrow_weight_launch.cuh"

namespace convt2d::cuda::narrow {

void launch_weight_halves(const Problem& problem, int row, const WeightParams& params,
                          void* stream) {
  const auto run = problem.dtype == DType::f16 ? launch_weight_rows<MmaF16, 0, kFirstStrictWeight>
                                               : launch_weight_rows<MmaBF16, 0, kFirstStrictWeight>;
  run(row, params, stream);
}

}  // namespace convt2d::cuda::narrow
