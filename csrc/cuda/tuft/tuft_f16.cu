#include "cuda/tuft/tuft_launch.cuh"

namespace convt2d::cuda::tuft {

void launch_f16(int row, const Params& params, const Maps& maps, int64_t blocks, void* stream) {
  launch_rows<__half>(row, params, maps, blocks, stream);
}

}  // namespace convt2d::cuda::tuft
