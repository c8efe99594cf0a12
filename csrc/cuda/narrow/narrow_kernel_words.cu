#include "cuda/narrow/narrow_launch.cuh"

namespace convt2d::cuda::narrow {

void launch_words(DType, int row, const Params& params, const CUtensorMap& map, void* stream) {
  launch_rows<float, kTileCount>(row, params, map, stream);
}

}  // namespace convt2d::cuda::narrow
