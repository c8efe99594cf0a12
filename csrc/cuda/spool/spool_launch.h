// spool_kernel.cu
#pragma once

#include "core/types.h"
#include "cuda/spool/spool_plan.h"

namespace convt2d::cuda::spool {

void launch_turn(const Params& params, void* stream);
void launch_sum(DType dtype, const Params& params, void* stream);

}  // namespace convt2d::cuda::spool
