#include "cuda/narrow/narrow_weight_launch.cuh"

namespace convt2d::cuda::narrow {

void launch_weight_halves(const Problem& problem, int row, const WeightParams& params,
                          void* stream) {
  const bool channels_last = problem.x_layout == Layout::nhwc;
  const auto run = problem.dtype == DType::f16
                       ? channels_last ? launch_weight_rows<MmaF16, 0, kFirstStrictWeight, true>
                                       : launch_weight_rows<MmaF16, 0, kFirstStrictWeight, false>
                   : channels_last ? launch_weight_rows<MmaBF16, 0, kFirstStrictWeight, true>
                                   : launch_weight_rows<MmaBF16, 0, kFirstStrictWeight, false>;
  run(row, params, stream);
}

}  // namespace convt2d::cuda::narrow
