#include "cuda/cuda_check.h"
#include "cuda/hopper/hopper_nchw_weight.cuh"
#include "cuda/shared_memory.h"
#include "cuda/visit_row.h"

namespace convt2d::cuda::hopper {
namespace {

template <class T, int COUNT = kNchwStrictTilesAt>
void launch(int row, const NchwWeightParams& params, const NchwWeightMaps& maps, int64_t blocks,
            cudaStream_t stream) {
  visit_row<COUNT>(row, [&](auto index) {
    constexpr int kRow = decltype(index)::value;
    constexpr auto kernel = convt2d_hopper_nchw_grad_weight_kernel<T, kRow>;
    const int bytes = nchw_shared_bytes(params, kNchwWeightTiles[kRow]);
    allow_shared_memory<kernel>(bytes);
    kernel<<<static_cast<unsigned>(blocks), kNchwThreads, bytes, stream>>>(params, maps);
    check_launch("convt2d_hopper_nchw_grad_weight_kernel");
  });
}

}  // namespace

void launch_nchw_weight(DType dtype, int row, const NchwWeightParams& params,
                        const NchwWeightMaps& maps, int64_t blocks, void* stream) {
  const auto run = dtype == DType::f16    ? launch<__half>
                   : dtype == DType::bf16 ? launch<__nv_bfloat16>
                                          : launch<float, kNchwWeightTileCount>;
  run(row, params, maps, blocks, static_cast<cudaStream_t>(stream));
}

}  // namespace convt2d::cuda::hopper
