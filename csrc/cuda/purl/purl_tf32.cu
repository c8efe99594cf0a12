#include "cuda/purl/purl_launch.cuh"

namespace convt2d::cuda::purl {

void launch_tf32(int row, const Params& params, const Maps& maps, void* stream) {
  launch_rows<float>(row, params, maps, stream);
}

}  // namespace convt2d::cuda::purl
