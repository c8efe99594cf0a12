#include "cuda/loom/loom_kernel_launch.cuh"

namespace convt2d::cuda::loom {

void launch_strict(int row, const GatherParams& params, const TensorMaps& maps, void* stream) {
  launch_rows<float, kFirstStrict, kTileCount - kFirstStrict>(row, params, maps, stream);
}

}  // namespace convt2d::cuda::loom
