#include "cuda/scroll/scroll_planes_launch.cuh"

namespace convt2d::cuda::scroll {

void launch_planes_tf32(int row, int64_t blocks, const PlaneParams& params, void* stream) {
  launch_planes<float>(row, blocks, params, stream);
}

}  // namespace convt2d::cuda::scroll
