#include "cuda/quilt/quilt_launch.cuh"

namespace convt2d::cuda::quilt {

void launch_tf32(int row, const Params& params, const Maps& maps, void* stream) {
  launch_rows<MmaTF32, 0, kTileCount>(row, params, maps, stream);
}
void launch_strict(int row, const Params& params, const Maps& maps, void* stream) {
  launch_rows<MmaF32x3, kTileCount, kTileCount + kStrictTileCount>(row, params, maps, stream);
}

}  // namespace convt2d::cuda::quilt
