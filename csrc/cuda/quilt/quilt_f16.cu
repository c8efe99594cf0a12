#include "cuda/quilt/quilt_launch.cuh"

namespace convt2d::cuda::quilt {

void launch_f16(int row, const Params& params, void* stream) {
  launch_rows<MmaF16, 0, kTileCount>(row, params, stream);
}

}  // namespace convt2d::cuda::quilt
