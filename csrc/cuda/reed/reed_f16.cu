#include "cuda/reed/reed_launch.cuh"

namespace convt2d::cuda::reed {

void launch_f16(int row, const Params& params, void* stream) {
  launch_rows<MmaF16, kTileCount>(row, params, stream);
}

void launch_held_f16(const Held& held, int64_t blocks, int bytes, void* stream) {
  launch_held<MmaF16>(held, blocks, bytes, stream);
}

}  // namespace convt2d::cuda::reed
