#include "cuda/fold/fold_launch.cuh"

namespace convt2d::cuda::fold {

void launch_crossed(DType dtype, int row, const Params& params, const Maps& maps, int64_t blocks,
                    void* stream) {
  const auto run = dtype == DType::f32 ? launch_rows<float, kCrossedWords, kCrossedWords + 1>
                   : dtype == DType::f16
                       ? launch_rows<__half, kCrossedHalves, kCrossedHalves + 1>
                       : launch_rows<__nv_bfloat16, kCrossedHalves, kCrossedHalves + 1>;
  run(row, params, maps, blocks, stream);
}

}  // namespace convt2d::cuda::fold
