#include "cuda/hank/hank_launch.cuh"

namespace convt2d::cuda::hank {

void launch_f16(int row, const Params& params, const Maps& maps, void* stream) {
  launch_rows<MmaF16>(row, params, maps, stream);
}

}  // namespace convt2d::cuda::hank
