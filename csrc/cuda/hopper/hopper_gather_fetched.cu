#include "cuda/hopper/hopper_gather_launch.cuh"

namespace convt2d::cuda::hopper {

void launch_gather_fetched(DType dtype, int row, const GatherParams& params, const TensorMaps& maps,
                           void* stream) {
  constexpr int kFirst = kFirstFetched,
                kRowTiles = kFetchedTiles - kFetchedHalfTiles - kFetchedWideTiles;
  const auto run = dtype == DType::f16 ? launch_rows<MmaF16, kFirst, kFetchedTiles>
                   : dtype == DType::bf16
                       ? launch_rows<MmaBF16, kFirst, kFetchedTiles>
                       : launch_rows<MmaTF32, kFirst + kFetchedHalfTiles, kRowTiles>;
  run(row, params, maps, stream);
}

}  // namespace convt2d::cuda::hopper
