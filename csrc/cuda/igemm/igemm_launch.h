// One launcher for each way of multiplying; they live in files of their own to compile side by side.
#pragma once

#include "core/args.h"
#include "core/plan.h"
#include "cuda/igemm/igemm_config.h"
#include "cuda/igemm/igemm_weight_config.h"

namespace convt2d::cuda::igemm {

void launch_gather_f16(int row, const GatherParams& params, void* stream);
void launch_gather_bf16(int row, const GatherParams& params, void* stream);
void launch_gather_tf32(int row, const GatherParams& params, void* stream);
void launch_gather_f32x3(int row, const GatherParams& params, void* stream);

void launch_weight_f16(int row, const WeightParams& params, int64_t blocks, void* stream);
void launch_weight_bf16(int row, const WeightParams& params, int64_t blocks, void* stream);
void launch_weight_tf32(int row, const WeightParams& params, int64_t blocks, void* stream);

// grad_weight as a whole: the kernel, the sum of its pieces, the bias gradient if wanted.
void launch_grad_weight(const Problem& problem, const Plan& plan, const Args& args);

}  // namespace convt2d::cuda::igemm
