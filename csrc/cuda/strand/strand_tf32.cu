#include "cuda/strand/strand_launch.cuh"

namespace convt2d::cuda::strand {

void launch_tf32(int row, const Params& params, void* stream) {
  launch_rows<MmaTF32, kTileCount>(row, params, stream);
}

}  // namespace convt2d::cuda::strand
