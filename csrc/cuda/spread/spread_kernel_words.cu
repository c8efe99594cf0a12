#include "cuda/spread/spread_launch.cuh"

namespace convt2d::cuda::spread {

void launch_words(DType, int row, const Params& params, const CUtensorMap& map, void* stream) {
  launch_rows<float>(row, params, map, stream);
}

}  // namespace convt2d::cuda::spread
