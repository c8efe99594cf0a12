#include "cuda/scroll/scroll_launch.cuh"

namespace convt2d::cuda::scroll {

void launch_bf16(int row, int64_t blocks, const Params& params, const CUtensorMap& map,
                 void* stream) {
  launch_rows<__nv_bfloat16>(row, blocks, params, map, stream);
}

}  // namespace convt2d::cuda::scroll
