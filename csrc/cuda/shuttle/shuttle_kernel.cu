#include "cuda/cuda_check.h"
#include "cuda/shared_memory.h"
#include "cuda/shuttle/shuttle_kernel.cuh"
#include "cuda/shuttle/shuttle_launch.h"
#include "cuda/shuttle/shuttle_plan.h"
#include "cuda/visit_row.h"

namespace convt2d::cuda::shuttle {
namespace {

template <class T>
void launch(int row, const Params& params, const Maps& maps, void* stream) {
  visit_row<kTileCount>(row, [&](auto index) {
    constexpr int kRow = decltype(index)::value;
    constexpr auto kernel = convt2d_shuttle_grad_weight_kernel<T, kRow>;
    const int bytes = shared_bytes(params, kTiles[kRow]);
    allow_shared_memory<kernel>(bytes);
    kernel<<<static_cast<unsigned>(blocks_of(params)), threads(kTiles[kRow]), bytes,
             static_cast<cudaStream_t>(stream)>>>(params, maps);
    check_launch("convt2d_shuttle_grad_weight_kernel");
  });
}

}  // namespace

void launch_f16(int row, const Params& params, const Maps& maps, void* stream) {
  launch<__half>(row, params, maps, stream);
}
void launch_bf16(int row, const Params& params, const Maps& maps, void* stream) {
  launch<__nv_bfloat16>(row, params, maps, stream);
}

}  // namespace convt2d::cuda::shuttle
