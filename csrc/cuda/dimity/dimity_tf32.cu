#include "cuda/dimity/dimity_launch.cuh"

namespace convt2d::cuda::dimity {

void launch_tf32(int row, const Params& params, void* stream) {
  launch_rows<MmaTF32>(row, params, stream);
}

}  // namespace convt2d::cuda::dimity
