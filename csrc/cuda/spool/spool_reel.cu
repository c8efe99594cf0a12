#include "cuda/early_launch.h"
#include "cuda/shared_memory.h"
#include "cuda/spool/spool_launch.h"
#include "cuda/spool/spool_reel.cuh"
#include "cuda/visit_row.h"

namespace convt2d::cuda::spool {
namespace {

template <class T>
void launch(int row, const Params& params, const hopper::WeightMaps& maps, void* stream) {
  visit_row<hopper::kWeightTileCount>(row, [&](auto index) {
    constexpr int kRow = decltype(index)::value;
    constexpr auto kernel = convt2d_spool_reel_kernel<T, kRow>;
    allow_shared_memory<kernel>(params.reel_bytes);
    launch_together(kernel, params.weight_blocks,
                    hopper::weight_threads(hopper::kWeightTiles[kRow]), params.reel_bytes, stream,
                    params.weight, maps, params.reel, reel_maps_of(params.reel));
  });
}

}  // namespace

void launch_reel(DType dtype, int row, const Params& params, const hopper::WeightMaps& maps,
                 void* stream) {
  CONVT2D_CUDA_CHECK(cudaMemsetAsync(params.reel.turned, 0, 2 * params.reel.slices * 4,
                                     static_cast<cudaStream_t>(stream)));
  const auto run = dtype == DType::f16 ? launch<__half> : launch<__nv_bfloat16>;
  run(row, params, maps, stream);
}

}  // namespace convt2d::cuda::spool
