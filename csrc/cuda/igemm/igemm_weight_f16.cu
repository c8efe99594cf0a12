#include "cuda/igemm/igemm_weight_launch.cuh"

namespace convt2d::cuda::igemm {

void launch_weight_f16(int row, const WeightParams& params, int64_t blocks, void* stream) {
  launch_weight<MmaF16>(row, params, blocks, stream);
}

}  // namespace convt2d::cuda::igemm
