#include "cuda/cuda_check.h"
#include "cuda/shared_memory.h"
#include "cuda/slide/slide_launch.h"
#include "cuda/slide/slide_turned.cuh"
#include "cuda/visit_row.h"

namespace convt2d::cuda::slide {
namespace {

template <class T>
void launch_strips(int row, const TurnedParams& params, const CUtensorMap& map, int64_t blocks,
                   void* stream) {
  visit_row<kStripCount>(row - kTurnedRow, [&](auto index) {
    constexpr auto kernel = convt2d_slide_turned_kernel<T, kStrips[decltype(index)::value]>;
    allow_shared_memory<kernel>(params.shared_bytes);
    kernel<<<static_cast<unsigned>(blocks), kTurnedThreads, params.shared_bytes,
             static_cast<cudaStream_t>(stream)>>>(params, map);
    check_launch("convt2d_slide_turned_kernel");
  });
}

}  // namespace

void launch_turned(DType dtype, int row, const TurnedParams& params, const CUtensorMap& map,
                   int64_t blocks, void* stream) {
  const auto run = dtype == DType::f16 ? launch_strips<__half> : launch_strips<__nv_bfloat16>;
  run(row, params, map, blocks, stream);
}

}  // namespace convt2d::cuda::slide
