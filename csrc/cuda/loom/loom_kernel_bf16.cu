#include "cuda/loom/loom_kernel_launch.cuh"

namespace convt2d::cuda::loom {

void launch_bf16(int row, const GatherParams& params, const TensorMaps& maps, void* stream) {
  launch_rows<__nv_bfloat16, 0, kFirstStrict>(row, params, maps, stream);
}

}  // namespace convt2d::cuda::loom
