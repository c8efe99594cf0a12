#include "cuda/cuda_check.h"
#include "cuda/plait/plait_kernel.cuh"
#include "cuda/plait/plait_launch.h"
#include "cuda/shared_memory.h"

namespace convt2d::cuda::plait {
namespace {

template <class T>
void run(const Params& params, const Maps& maps, int64_t blocks, void* stream) {
  constexpr auto kernel = convt2d_plait_kernel<T>;
  allow_shared_memory<kernel>(params.shared_bytes);
  kernel<<<static_cast<unsigned>(blocks), kThreads, params.shared_bytes,
           static_cast<cudaStream_t>(stream)>>>(params, maps);
  check_launch("convt2d_plait_kernel");
}

}  // namespace

void launch_kernel(DType dtype, const Params& params, const Maps& maps, int64_t blocks,
                   void* stream) {
  if (dtype == DType::f16)
    run<__half>(params, maps, blocks, stream);
  else
    run<__nv_bfloat16>(params, maps, blocks, stream);
}

}  // namespace convt2d::cuda::plait
