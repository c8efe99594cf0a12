#include "cuda/narrow/narrow_weight_launch.cuh"

namespace convt2d::cuda::narrow {

void launch_weight_words(const Problem& problem, int row, const WeightParams& params,
                         void* stream) {
  const auto run = problem.precision == Precision::tf32
                       ? launch_weight_rows<MmaTF32, 0, kFirstStrictWeight>
                       : launch_weight_rows<MmaF32x3, kFirstStrictWeight, kWeightTileCount>;
  run(row, params, stream);
}

}  // namespace convt2d::cuda::narrow
