#include "cuda/fold/fold_launch.cuh"

namespace convt2d::cuda::fold {

void launch_flat(DType dtype, int row, const Params& params, const Maps& maps, int64_t blocks,
                 void* stream) {
  const auto run = dtype == DType::f16 ? launch_rows<__half, kFirstFlat, kCrossed>
                                       : launch_rows<__nv_bfloat16, kFirstFlat, kCrossed>;
  run(row, params, maps, blocks, stream);
}

}  // namespace convt2d::cuda::fold
