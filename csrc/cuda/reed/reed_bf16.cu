#include "cuda/reed/reed_launch.cuh"

namespace convt2d::cuda::reed {

void launch_bf16(int row, const Params& params, void* stream) {
  launch_rows<MmaBF16, kTileCount>(row, params, stream);
}

void launch_held_bf16(const Held& held, int64_t blocks, int bytes, void* stream) {
  launch_held<MmaBF16>(held, blocks, bytes, stream);
}

}  // namespace convt2d::cuda::reed
