#include "cuda/early_launch.h"
#include "cuda/hopper/hopper_weight.cuh"
#include "cuda/hopper/hopper_weight_launch.h"
#include "cuda/shared_memory.h"
#include "cuda/visit_row.h"

namespace convt2d::cuda::hopper {
namespace {

template <class T>
void launch(int row, const WeightParams& params, const WeightMaps& maps, int64_t blocks,
            cudaStream_t stream, bool early) {
  visit_row<kWeightTileCount>(row, [&](auto index) {
    constexpr int kRow = decltype(index)::value;
    constexpr auto kernel = convt2d_hopper_grad_weight_kernel<T, kRow>;
    const int bytes = weight_shared_bytes(params, kWeightTiles[kRow]);
    allow_shared_memory<kernel>(bytes);
    launch_after(early, kernel, blocks, weight_threads(kWeightTiles[kRow]), bytes, stream, params,
                 maps);
  });
}

}  // namespace

void launch_weight(DType dtype, int row, const WeightParams& params, const WeightMaps& maps,
                   int64_t blocks, void* stream, bool early) {
  const auto run = dtype == DType::f16 ? launch<__half> : launch<__nv_bfloat16>;
  run(row, params, maps, blocks, static_cast<cudaStream_t>(stream), early);
}

}  // namespace convt2d::cuda::hopper
