// spool_kernel.cu, spool_reel.cu
#pragma once

#include "core/types.h"
#include "cuda/spool/spool_plan.h"

namespace convt2d::cuda::spool {

void launch_turn(const Params& params, void* stream);
void launch_reel(DType dtype, int row, const Params& params, const hopper::WeightMaps& maps,
                 void* stream);
void launch_sum(DType dtype, const Params& params, void* stream);

}  // namespace convt2d::cuda::spool
