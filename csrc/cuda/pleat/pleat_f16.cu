#include "cuda/pleat/pleat_launch.cuh"

namespace convt2d::cuda::pleat {

void launch_f16(int row, const Params& params, const Maps& maps, void* stream) {
  launch_rows<__half>(row, params, maps, stream);
}

}  // namespace convt2d::cuda::pleat
