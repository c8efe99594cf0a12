// The launchers of the rows of kTiles, some each; they live in files of their own to compile side by side.
#pragma once

#include "cuda/hopper/hopper_config.h"

namespace convt2d::cuda::hopper {

using Launch = void(DType dtype, int row, const GatherParams& params, const TensorMaps& maps,
                    void* stream);

// What threads feed: pixel rows of 16 bits, channel rows of 16 bits, all of tf32.
Launch launch_gather_f16, launch_gather_bf16, launch_gather_channels, launch_gather_tf32;
// Strict fp32, fed by threads too, or fetched.
Launch launch_gather_strict, launch_gather_strict_fetched;
// What the copy engine feeds.
Launch launch_gather_turned, launch_gather_weights, launch_gather_copied;
// What consumers fetch; in TF32 the latter does it.
Launch launch_gather_fetched, launch_gather_fetched_words;

}  // namespace convt2d::cuda::hopper
