// Held tiles of TF32 on wgmma.
#include "cuda/cuda_check.h"
#include "cuda/reed/reed_launch.h"
#include "cuda/reed/reed_wide.cuh"
#include "cuda/shared_memory.h"
#include "cuda/visit_row.h"

namespace convt2d::cuda::reed {

void launch_wide(const Held& held, int64_t blocks, int bytes, void* stream) {
  constexpr int kCount = sizeof(kWideColumns) / sizeof(kWideColumns[0]);
  int row = 0;
  while (row + 1 < kCount && kWideColumns[row] != held.tiles * 16) ++row;
  visit_row<kCount>(row, [&](auto index) {
    constexpr auto kernel = convt2d_reed_wide_kernel<kWideColumns[decltype(index)::value]>;
    allow_shared_memory<kernel>(bytes);
    kernel<<<static_cast<unsigned>(blocks), kHeldThreads, bytes,
             static_cast<cudaStream_t>(stream)>>>(held);
    check_launch("convt2d_reed_wide_kernel");
  });
}

}  // namespace convt2d::cuda::reed
