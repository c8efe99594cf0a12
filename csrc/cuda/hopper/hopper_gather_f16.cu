#include "cuda/hopper/hopper_gather_launch.cuh"

namespace convt2d::cuda::hopper {

void launch_gather_f16(DType, int row, const GatherParams& params, const TensorMaps& maps,
                       void* stream) {
  launch_rows<MmaF16, kStrictTiles, kFedTiles - kChannelTiles>(row, params, maps, stream);
}

}  // namespace convt2d::cuda::hopper
