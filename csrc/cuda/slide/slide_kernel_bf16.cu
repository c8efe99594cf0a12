#include "cuda/slide/slide_launch.cuh"

namespace convt2d::cuda::slide {

void launch_bf16(int row, const Params& params, const CUtensorMap& map, int64_t blocks,
                 void* stream) {
  launch_rows<__nv_bfloat16>(row, params, map, blocks, stream);
}

}  // namespace convt2d::cuda::slide
