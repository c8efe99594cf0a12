// Held tiles of TF32 on wgmma.
#include "cuda/cuda_check.h"
#include "cuda/reed/reed_launch.h"
#include "cuda/reed/reed_wide.cuh"
#include "cuda/shared_memory.h"

namespace convt2d::cuda::reed {

void launch_wide(const Held& held, int64_t blocks, int bytes, void* stream) {
  constexpr auto kernel = convt2d_reed_wide_kernel<kWideColumns>;
  allow_shared_memory<kernel>(bytes);
  kernel<<<static_cast<unsigned>(blocks), kHeldThreads, bytes, static_cast<cudaStream_t>(stream)>>>(
      held);
  check_launch("convt2d_reed_wide_kernel");
}

}  // namespace convt2d::cuda::reed
