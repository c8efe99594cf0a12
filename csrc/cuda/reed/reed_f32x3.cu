#include "cuda/reed/reed_launch.cuh"

namespace convt2d::cuda::reed {

void launch_f32x3(int row, const Params& params, void* stream) {
  launch_rows<MmaF32x3, kStrictTiles>(row, params, stream);
}

}  // namespace convt2d::cuda::reed
