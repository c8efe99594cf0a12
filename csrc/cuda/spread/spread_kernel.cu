#include "cuda/spread/spread_launch.cuh"

namespace convt2d::cuda::spread {

void launch_halves(DType dtype, int row, const Params& params, const CUtensorMap& map,
                   void* stream) {
  const auto run = dtype == DType::f16 ? launch_rows<__half> : launch_rows<__nv_bfloat16>;
  run(row, params, map, stream);
}

}  // namespace convt2d::cuda::spread
