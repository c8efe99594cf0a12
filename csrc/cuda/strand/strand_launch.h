// strand's kernels, as the host calls them.
#pragma once

#include <cuda.h>

#include "cuda/strand/strand_dense.h"
#include "cuda/strand/strand_spans.h"
#include "cuda/strand/strand_windows.h"

namespace convt2d::cuda::strand {

using Launch = void(int row, const Params& params, void* stream);
Launch launch_f16;    // strand_f16.cu
Launch launch_bf16;   // strand_bf16.cu
Launch launch_tf32;   // strand_tf32.cu
Launch launch_f32x3;  // strand_f32x3.cu

using LaunchWindows = void(int row, const WindowParams& params, const CUtensorMap& source,
                           const CUtensorMap& weights, void* stream);
LaunchWindows launch_windows_f16, launch_windows_bf16, launch_windows_tf32, launch_windows_f32x3;

using LaunchDense = void(int row, const DenseParams& params, const CUtensorMap& source,
                         const CUtensorMap& weights, void* stream);
LaunchDense launch_dense_tf32, launch_dense_f32x3;

void launch_spans(DType dtype, bool pixels, const SpanParams& params, int64_t tiles,
                  const CUtensorMap& source, const CUtensorMap& weights,
                  void* stream);  // strand_spans.cu

}  // namespace convt2d::cuda::strand
