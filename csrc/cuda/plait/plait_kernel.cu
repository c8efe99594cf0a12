#include "cuda/cuda_check.h"
#include "cuda/plait/plait_kernel.cuh"
#include "cuda/plait/plait_launch.h"
#include "cuda/shared_memory.h"

namespace convt2d::cuda::plait {
namespace {

template <class T>
void run(const Params& params, const CUtensorMap& map, int64_t blocks, void* stream) {
  constexpr auto kernel = convt2d_plait_kernel<T>;
  allow_shared_memory<kernel>(params.shared_bytes);
  kernel<<<static_cast<unsigned>(blocks), kThreads, params.shared_bytes,
           static_cast<cudaStream_t>(stream)>>>(params, map);
  check_launch("convt2d_plait_kernel");
}

}  // namespace

void launch_kernel(DType dtype, const Params& params, const CUtensorMap& map, int64_t blocks,
                   void* stream) {
  if (dtype == DType::f16)
    run<__half>(params, map, blocks, stream);
  else
    run<__nv_bfloat16>(params, map, blocks, stream);
}

}  // namespace convt2d::cuda::plait
