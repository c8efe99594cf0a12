#include "cuda/slide/slide_launch.cuh"

namespace convt2d::cuda::slide {

void launch_f16(int row, const Params& params, const CUtensorMap& map, int64_t blocks,
                void* stream) {
  launch_rows<__half>(row, params, map, blocks, stream);
}

}  // namespace convt2d::cuda::slide
