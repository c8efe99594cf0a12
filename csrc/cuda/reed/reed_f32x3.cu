#include "cuda/reed/reed_launch.cuh"

namespace convt2d::cuda::reed {

void launch_f32x3(int row, const Params& params, void* stream) {
  launch_rows<MmaF32x3, kStrictTiles>(row, params, stream);
}

void launch_held_f32x3(const Held& held, int64_t blocks, int bytes, void* stream) {
  launch_held<MmaF32x3>(held, blocks, bytes, stream);
}

}  // namespace convt2d::cuda::reed
