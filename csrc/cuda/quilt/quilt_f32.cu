#include "cuda/quilt/quilt_launch.cuh"

namespace convt2d::cuda::quilt {

void launch_tf32(int row, const Params& params, void* stream) {
  launch_rows<MmaTF32, 0, kTileCount>(row, params, stream);
}
void launch_strict(int row, const Params& params, void* stream) {
  launch_rows<MmaF32x3, kTileCount, kTileCount + kStrictTileCount>(row, params, stream);
}

}  // namespace convt2d::cuda::quilt
