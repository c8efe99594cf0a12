#include "cuda/reed/reed_launch.cuh"

namespace convt2d::cuda::reed {

void launch_f16(int row, const Params& params, void* stream) {
  launch_rows<MmaF16, kTileCount>(row, params, stream);
}

}  // namespace convt2d::cuda::reed
