// One launcher for each way of multiplying; they live in files of their own to compile side by side.
#pragma once

#include "cuda/igemm/igemm_config.h"

namespace convt2d::cuda::igemm {

void launch_gather_f16(int row, const GatherParams& params, void* stream);
void launch_gather_bf16(int row, const GatherParams& params, void* stream);
void launch_gather_tf32(int row, const GatherParams& params, void* stream);
void launch_gather_f32x3(int row, const GatherParams& params, void* stream);

}  // namespace convt2d::cuda::igemm
