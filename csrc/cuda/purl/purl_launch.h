// purl's kernels, as the host calls them.
#pragma once

#include "cuda/purl/purl_config.h"

namespace convt2d::cuda::purl {

using Launch = void(int row, const Params& params, const Maps& maps, void* stream);
Launch launch_f16, launch_bf16, launch_tf32;  // purl_f16.cu, purl_bf16.cu, purl_tf32.cu

}  // namespace convt2d::cuda::purl
