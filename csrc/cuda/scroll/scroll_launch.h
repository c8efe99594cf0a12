// scroll's kernels, as the host calls them.
#pragma once

#include "cuda/scroll/scroll_planes.h"

namespace convt2d::cuda::scroll {

using Launch = void(int row, int64_t blocks, const Params& params, const CUtensorMap& map,
                    void* stream);
Launch launch_f16, launch_bf16, launch_tf32;  // scroll_f16.cu and so on

using LaunchPlanes = void(int row, int64_t blocks, const PlaneParams& params, void* stream);
LaunchPlanes launch_planes_f16, launch_planes_bf16, launch_planes_tf32;  // scroll_planes_f16.cu

}  // namespace convt2d::cuda::scroll
