#include "cuda/cuda_check.h"
#include "cuda/hopper/hopper_fetched_weight.cuh"
#include "cuda/shared_memory.h"
#include "cuda/visit_row.h"

namespace convt2d::cuda::hopper {
namespace {

// Of tiles FIRST to END.
template <class T, int FIRST, int END>
void launch(int row, const FetchedWeightParams& params, const FetchedWeightMaps& maps,
            int64_t blocks, cudaStream_t stream) {
  visit_row<END - FIRST>(row - FIRST, [&](auto index) {
    constexpr int kRow = FIRST + decltype(index)::value;
    constexpr FetchedWeightTile tile = kFetchedWeightTiles[kRow];
    constexpr auto kernel = convt2d_hopper_fetched_grad_weight_kernel<T, kRow>;
    const int bytes = fetched_shared_bytes(params, tile);
    allow_shared_memory<kernel>(bytes);
    kernel<<<static_cast<unsigned>(blocks), threads(tile), bytes, stream>>>(params, maps);
    check_launch("convt2d_hopper_fetched_grad_weight_kernel");
  });
}

}  // namespace

void launch_fetched_weight(DType dtype, int row, const FetchedWeightParams& params,
                           const FetchedWeightMaps& maps, int64_t blocks, void* stream) {
  const FetchedWeightTile tile = kFetchedWeightTiles[row];
  const auto run =
      dtype == DType::f16
          ? (tile.turned ? launch<__half, kFirstTurnedWeight, kFetchedWeightTileCount>
                         : launch<__half, 0, kFirstWordPlane>)
      : dtype == DType::bf16
          ? (tile.turned ? launch<__nv_bfloat16, kFirstTurnedWeight, kFetchedWeightTileCount>
                         : launch<__nv_bfloat16, 0, kFirstWordPlane>)
      : tile.channels_last ? launch<float, kFirstChannelsLast, kFirstTurnedWeight>
      : tile.strict        ? launch<float, kFirstStrictPlane, kFirstChannelsLast>
                           : launch<float, kFirstPlane, kFirstStrictPlane>;
  run(row, params, maps, blocks, static_cast<cudaStream_t>(stream));
}

}  // namespace convt2d::cuda::hopper
