#include "cuda/cuda_check.h"
#include "cuda/shared_memory.h"
#include "cuda/slide/slide_launch.h"
#include "cuda/slide/slide_strided.cuh"
#include "cuda/visit_row.h"

namespace convt2d::cuda::slide {
namespace {

template <class T>
void launch_widths(int row, const StridedParams& params, const CUtensorMap& map, int64_t blocks,
                   void* stream) {
  visit_row<kWidthCount>(row - kStridedRow, [&](auto index) {
    constexpr auto kernel = convt2d_slide_strided_kernel<T, kWidths[decltype(index)::value]>;
    allow_shared_memory<kernel>(params.shared_bytes);
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = cluster.val.clusterDim.z = 1;
    cluster.val.clusterDim.y = params.ranks;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(blocks), params.ranks);
    config.blockDim = dim3(kStridedThreads);
    config.dynamicSmemBytes = params.shared_bytes;
    config.stream = static_cast<cudaStream_t>(stream);
    config.attrs = &cluster;
    config.numAttrs = params.ranks > 1;
    CONVT2D_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, params, map));
  });
}

}  // namespace

void launch_strided(DType dtype, int row, const StridedParams& params, const CUtensorMap& map,
                    int64_t blocks, void* stream) {
  const auto run = dtype == DType::f16 ? launch_widths<__half> : launch_widths<__nv_bfloat16>;
  run(row, params, map, blocks, stream);
}

}  // namespace convt2d::cuda::slide
