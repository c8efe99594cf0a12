#include "cuda/purl/purl_launch.cuh"

namespace convt2d::cuda::purl {

void launch_f16(int row, const Params& params, const Maps& maps, void* stream) {
  launch_rows<__half>(row, params, maps, stream);
}

}  // namespace convt2d::cuda::purl
