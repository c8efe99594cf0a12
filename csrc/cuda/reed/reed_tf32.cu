#include "cuda/reed/reed_launch.cuh"

namespace convt2d::cuda::reed {

void launch_tf32(int row, const Params& params, void* stream) {
  launch_rows<MmaTF32, kTileCount>(row, params, stream);
}

void launch_held_tf32(const Held& held, int64_t blocks, int bytes, void* stream) {
  launch_held<MmaTF32>(held, blocks, bytes, stream);
}

}  // namespace convt2d::cuda::reed
