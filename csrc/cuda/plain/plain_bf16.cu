#include "cuda/plain/plain_launch.cuh"

namespace convt2d::cuda::plain {

void launch_bf16(int row, bool forward, const Params& params, const Maps& maps, void* stream) {
  const auto run = forward ? launch_rows<__nv_bfloat16, true> : launch_rows<__nv_bfloat16, false>;
  run(row, params, maps, stream);
}

void launch_weight_bf16(int row, const WeightParams& params, const Maps& maps, void* stream) {
  launch_weight_rows<__nv_bfloat16>(row, params, maps, stream);
}

}  // namespace convt2d::cuda::plain
