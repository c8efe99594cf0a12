#include "cuda/tuft/tuft_launch.cuh"

namespace convt2d::cuda::tuft {

void launch_bf16(int row, const Params& params, const Maps& maps, int64_t blocks, void* stream) {
  launch_rows<__nv_bfloat16>(row, params, maps, blocks, stream);
}

}  // namespace convt2d::cuda::tuft
