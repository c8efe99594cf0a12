#include "cuda/hopper/hopper_gather_launch.cuh"

namespace convt2d::cuda::hopper {

void launch_gather_strict_fetched(DType, int row, const GatherParams& params,
                                  const TensorMaps& maps, void* stream) {
  launch_rows<MmaF32x3, kStrictTiles - kStrictFetchedTiles, kStrictFetchedTiles>(row, params, maps,
                                                                                 stream);
}

}  // namespace convt2d::cuda::hopper
