#include "cuda/hopper/hopper_gather_launch.cuh"

namespace convt2d::cuda::hopper {

void launch_gather_fetched_words(DType, int row, const GatherParams& params, const TensorMaps& maps,
                                 void* stream) {
  launch_rows<MmaTF32, kFirstFetched, kFetchedTiles>(row, params, maps, stream);
}

}  // namespace convt2d::cuda::hopper
