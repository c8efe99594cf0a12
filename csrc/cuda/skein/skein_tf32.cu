#include "cuda/skein/skein_launch.cuh"

namespace convt2d::cuda::skein {

void launch_tf32(int row, const Params& params, const Maps& maps, void* stream) {
  launch_rows<MmaTF32>(row, params, maps, stream);
}

}  // namespace convt2d::cuda::skein
