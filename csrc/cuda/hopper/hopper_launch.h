// One launcher for each way of multiplying and one each for what the copy engine serves; they live in files of their own to
// compile side by side.
#pragma once

#include "cuda/hopper/hopper_config.h"

namespace convt2d::cuda::hopper {

void launch_gather_f16(int row, const GatherParams& params, const TensorMaps& maps, void* stream);
void launch_gather_bf16(int row, const GatherParams& params, const TensorMaps& maps, void* stream);
void launch_gather_tf32(int row, const GatherParams& params, const TensorMaps& maps, void* stream);
void launch_gather_turned(DType dtype, int row, const GatherParams& params, const TensorMaps& maps,
                          void* stream);
void launch_gather_copied(DType dtype, int row, const GatherParams& params, const TensorMaps& maps,
                          void* stream);

}  // namespace convt2d::cuda::hopper
