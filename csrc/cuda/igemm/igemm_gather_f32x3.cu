#include "cuda/igemm/igemm_gather_launch.cuh"

namespace convt2d::cuda::igemm {

void launch_gather_f32x3(int row, const GatherParams& params, void* stream) {
  launch_gather<MmaF32x3>(row, params, stream);
}

}  // namespace convt2d::cuda::igemm
