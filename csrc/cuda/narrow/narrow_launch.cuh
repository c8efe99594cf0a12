// From a row of kTiles to its kernel.
#pragma once

#include "cuda/cuda_check.h"
#include "cuda/narrow/narrow_kernel.cuh"
#include "cuda/narrow/narrow_launch.h"
#include "cuda/shared_memory.h"
#include "cuda/visit_row.h"

namespace convt2d::cuda::narrow {

// `row` is one of the first ROWS.
template <class T, int ROWS>
void launch_rows(int row, const Params& params, const CUtensorMap& map, void* stream) {
  visit_row<ROWS>(row, [&](auto index) {
    constexpr int kRow = decltype(index)::value;
    constexpr auto kernel = convt2d_narrow_kernel<T, kRow>;
    allow_shared_memory<kernel>(params.shared_bytes);
    kernel<<<static_cast<unsigned>(params.walkers), kThreads, params.shared_bytes,
             static_cast<cudaStream_t>(stream)>>>(params, map);
    check_launch("convt2d_narrow_kernel");
  });
}

}  // namespace convt2d::cuda::narrow
