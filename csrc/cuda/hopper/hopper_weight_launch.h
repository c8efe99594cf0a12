// grad_weight by hopper: the kernel, the sum of its pieces, the bias gradient if wanted.
#pragma once

#include "core/args.h"
#include "core/plan.h"
#include "cuda/hopper/hopper_weight_config.h"

namespace convt2d::cuda::hopper {

void launch_grad_weight(const Problem& problem, const Plan& plan, const Args& args);

// `early`: the kernel ahead of it in the stream, which wrote what it reads, may let it start (device/successor.cuh).
void launch_weight(DType dtype, int row, const WeightParams& params, const WeightMaps& maps,
                   int64_t blocks, void* stream, bool early = false);

}  // namespace convt2d::cuda::hopper
