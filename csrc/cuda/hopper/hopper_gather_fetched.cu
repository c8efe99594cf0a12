#include "cuda/hopper/hopper_gather_launch.cuh"

namespace convt2d::cuda::hopper {

void launch_gather_fetched(DType dtype, int row, const GatherParams& params, const TensorMaps& maps,
                           void* stream) {
  const auto run = dtype == DType::f16 ? launch_rows<MmaF16, kFirstFetched, kFetchedTiles>
                                       : launch_rows<MmaBF16, kFirstFetched, kFetchedTiles>;
  run(row, params, maps, stream);
}

}  // namespace convt2d::cuda::hopper
