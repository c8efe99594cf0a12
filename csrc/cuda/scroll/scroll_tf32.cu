#include "cuda/scroll/scroll_launch.cuh"

namespace convt2d::cuda::scroll {

void launch_tf32(int row, int64_t blocks, const Params& params, const CUtensorMap& map,
                 void* stream) {
  launch_rows<float>(row, blocks, params, map, stream);
}

}  // namespace convt2d::cuda::scroll
