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
    kernel<<<static_cast<unsigned>(blocks), kRowThreads, params.shared_bytes,
             static_cast<cudaStream_t>(stream)>>>(params, map);
    check_launch("convt2d_slide_strided_kernel");
  });
}

}  // namespace

void launch_strided(DType dtype, int row, const StridedParams& params, const CUtensorMap& map,
                    int64_t blocks, void* stream) {
  const auto run = dtype == DType::f16 ? launch_widths<__half> : launch_widths<__nv_bfloat16>;
  run(row, params, map, blocks, stream);
}

}  // namespace convt2d::cuda::slide
