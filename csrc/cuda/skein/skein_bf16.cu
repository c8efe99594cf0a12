#include "cuda/skein/skein_launch.cuh"

namespace convt2d::cuda::skein {

void launch_bf16(int row, const Params& params, const Maps& maps, void* stream) {
  launch_rows<MmaBF16>(row, params, maps, stream);
}

}  // namespace convt2d::cuda::skein
