#include "cuda/heddle/heddle_launch.cuh"

namespace convt2d::cuda::heddle {

void launch_f32x3(int row, const Params& params, void* stream) {
  launch_rows<MmaF32x3, kFirstStrict, kTileCount>(row, params, stream);
}

}  // namespace convt2d::cuda::heddle
