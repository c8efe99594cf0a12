// slide's kernels, as the host calls them.
#pragma once

#include "cuda/slide/slide_strided.h"

namespace convt2d::cuda::slide {

using Launch = void(int row, const Params& params, const CUtensorMap& map, int64_t blocks,
                    void* stream);
Launch launch_f16;   // slide_kernel_f16.cu
Launch launch_bf16;  // slide_kernel_bf16.cu

void launch_turned(DType dtype, int row, const TurnedParams& params, const CUtensorMap& map,
                   int64_t blocks,
                   void* stream);  // slide_turned.cu
void launch_strided(DType dtype, int row, const StridedParams& params, const CUtensorMap& map,
                    int64_t blocks,
                    void* stream);  // slide_strided.cu

}  // namespace convt2d::cuda::slide
