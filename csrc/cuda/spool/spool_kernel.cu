#include "cuda/early_launch.h"
#include "cuda/shared_memory.h"
#include "cuda/spool/spool_kernel.cuh"
#include "cuda/spool/spool_launch.h"

namespace convt2d::cuda::spool {

void launch_turn(const Params& params, void* stream) {
  launch_after(false, convt2d_spool_turn_kernel, params.turn_blocks, kTurnThreads, kTurnBytes,
               stream, params.turn);
}

void launch_sum(DType dtype, const Params& params, void* stream) {
  if (params.rounded) {
    const int bytes = return_bytes(params.sum);
    allow_shared_memory<convt2d_spool_return_kernel>(bytes);
    return launch_after(true, convt2d_spool_return_kernel, params.sum_blocks, kSumThreads, bytes,
                        stream, params.sum);
  }
  const auto kernel = dtype == DType::f16 ? convt2d_spool_sum_kernel<__half>
                                          : convt2d_spool_sum_kernel<__nv_bfloat16>;
  launch_after(true, kernel, params.sum_blocks, kSumThreads, sum_bytes(params.sum), stream,
               params.sum);
}

}  // namespace convt2d::cuda::spool
