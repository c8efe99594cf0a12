#include "cuda/comb/comb_launch.cuh"

namespace convt2d::cuda::comb {

void launch_tf32(int row, const Params& params, void* stream) {
  launch_rows<MmaTF32, kWordTiles>(row, params, stream);
}

}  // namespace convt2d::cuda::comb
