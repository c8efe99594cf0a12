#include "cuda/gauze/gauze_launch.cuh"

namespace convt2d::cuda::gauze {

void launch_bf16(int row, const Params& params, const Maps& maps, void* stream) {
  launch_rows<__nv_bfloat16>(row, params, maps, stream);
}

}  // namespace convt2d::cuda::gauze
