#include "cuda/plain/plain_launch.cuh"

namespace convt2d::cuda::plain {

void launch_f16(int row, bool forward, const Params& params, const Maps& maps, void* stream) {
  const auto run = forward ? launch_rows<__half, true> : launch_rows<__half, false>;
  run(row, params, maps, stream);
}

void launch_weight_f16(int row, const WeightParams& params, const Maps& maps, void* stream) {
  launch_weight_rows<__half>(row, params, maps, stream);
}

}  // namespace convt2d::cuda::plain
