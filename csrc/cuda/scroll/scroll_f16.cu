#include "cuda/scroll/scroll_launch.cuh"

namespace convt2d::cuda::scroll {

void launch_f16(int row, int64_t blocks, const Params& params, const CUtensorMap& map,
                void* stream) {
  launch_rows<__half>(row, blocks, params, map, stream);
}

}  // namespace convt2d::cuda::scroll
