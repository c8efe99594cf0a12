#include "cuda/hopper/hopper_gather_launch.cuh"

namespace convt2d::cuda::hopper {

void launch_gather_f16(int row, const GatherParams& params, const TensorMaps& maps, void* stream) {
  launch_gather<MmaF16>(row, params, maps, stream);
}

}  // namespace convt2d::cuda::hopper
