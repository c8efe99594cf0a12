#include "cuda/dimity/dimity_launch.cuh"

namespace convt2d::cuda::dimity {

void launch_strict(int row, const Params& params, const Maps& maps, void* stream) {
  launch_rows<MmaF32x3>(row, params, maps, stream);
}

}  // namespace convt2d::cuda::dimity
