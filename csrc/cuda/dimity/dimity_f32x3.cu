#include "cuda/dimity/dimity_launch.cuh"

namespace convt2d::cuda::dimity {

void launch_strict(int row, const Params& params, void* stream) {
  launch_rows<MmaF32x3>(row, params, stream);
}

}  // namespace convt2d::cuda::dimity
