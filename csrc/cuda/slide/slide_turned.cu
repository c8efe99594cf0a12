#include "cuda/cuda_check.h"
#include "cuda/shared_memory.h"
#include "cuda/slide/slide_launch.h"
#include "cuda/slide/slide_turned.cuh"

namespace convt2d::cuda::slide {

void launch_turned(DType dtype, const TurnedParams& params, const CUtensorMap& map, int64_t blocks,
                   void* stream) {
  const auto run = [&](auto kernel, auto allow) {
    allow(params.shared_bytes);
    kernel<<<static_cast<unsigned>(blocks), kTurnedThreads, params.shared_bytes,
             static_cast<cudaStream_t>(stream)>>>(params, map);
    check_launch("convt2d_slide_turned_kernel");
  };
  if (dtype == DType::f16) {
    run(convt2d_slide_turned_kernel<__half>,
        allow_shared_memory<convt2d_slide_turned_kernel<__half>>);
  } else {
    run(convt2d_slide_turned_kernel<__nv_bfloat16>,
        allow_shared_memory<convt2d_slide_turned_kernel<__nv_bfloat16>>);
  }
}

}  // namespace convt2d::cuda::slide
