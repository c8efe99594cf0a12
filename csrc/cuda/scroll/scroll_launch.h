// scroll's kernels, as the host calls them.
#pragma once

#include "cuda/scroll/scroll_config.h"

namespace convt2d::cuda::scroll {

using Launch = void(int row, int64_t blocks, const Params& params, const CUtensorMap& map,
                    void* stream);
Launch launch_f16, launch_bf16, launch_tf32;  // scroll_f16.cu and so on

}  // namespace convt2d::cuda::scroll
