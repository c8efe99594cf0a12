#include "cuda/cuda_check.h"
#include "cuda/hopper/hopper_packed_weight.cuh"
#include "cuda/shared_memory.h"
#include "cuda/visit_row.h"

namespace convt2d::cuda::hopper {
namespace {

template <class T>
void launch(int row, const PackedWeightParams& params, const CUtensorMap& x, int64_t blocks,
            cudaStream_t stream) {
  visit_row<kPackedWeightTileCount>(row - kFirstPackedWeight, [&](auto index) {
    constexpr int kRow = decltype(index)::value;
    constexpr auto kernel = convt2d_hopper_packed_grad_weight_kernel<T, kRow>;
    const int bytes = packed_shared_bytes(params, kPackedWeightTiles[kRow]);
    allow_shared_memory<kernel>(bytes);
    kernel<<<static_cast<unsigned>(blocks), kPackedThreads, bytes, stream>>>(params, x);
    check_launch("convt2d_hopper_packed_grad_weight_kernel");
  });
}

}  // namespace

void launch_packed_weight(DType dtype, int row, const PackedWeightParams& params,
                          const CUtensorMap& x, int64_t blocks, void* stream) {
  const auto run = dtype == DType::f16 ? launch<__half> : launch<__nv_bfloat16>;
  run(row, params, x, blocks, static_cast<cudaStream_t>(stream));
}

}  // namespace convt2d::cuda::hopper
