#include "cuda/quilt/quilt_launch.cuh"

namespace convt2d::cuda::quilt {

void launch_bf16(int row, const Params& params, const Maps& maps, void* stream) {
  launch_rows<MmaBF16, 0, kTileCount>(row, params, maps, stream);
}

}  // namespace convt2d::cuda::quilt
