#include "cuda/cuda_check.h"
#include "cuda/fold/fold_kernel.cuh"
#include "cuda/fold/fold_launch.h"
#include "cuda/shared_memory.h"
#include "cuda/visit_row.h"

namespace convt2d::cuda::fold {
namespace {

template <class T>
void launch(int row, const Params& params, const Maps& maps, int64_t blocks, cudaStream_t stream) {
  visit_row<kTileCount>(row, [&](auto index) {
    constexpr int kRow = decltype(index)::value;
    constexpr auto kernel = convt2d_fold_kernel<T, kRow>;
    allow_shared_memory<kernel>(params.shared_bytes);
    kernel<<<static_cast<unsigned>(blocks), kThreads, params.shared_bytes, stream>>>(params, maps);
    check_launch("convt2d_fold_kernel");
  });
}

}  // namespace

void launch_kernel(DType dtype, int row, const Params& params, const Maps& maps, int64_t blocks,
                   void* stream) {
  const auto run = dtype == DType::f16 ? launch<__half> : launch<__nv_bfloat16>;
  run(row, params, maps, blocks, static_cast<cudaStream_t>(stream));
}

}  // namespace convt2d::cuda::fold
