// From a row of kTiles to its kernel, for one type.
#pragma once

#include "cuda/cuda_check.h"
#include "cuda/scroll/scroll_kernel.cuh"
#include "cuda/scroll/scroll_launch.h"
#include "cuda/shared_memory.h"
#include "cuda/visit_row.h"

namespace convt2d::cuda::scroll {

template <class T>
void launch_rows(int row, int64_t blocks, const Params& params, const CUtensorMap& map,
                 void* stream) {
  visit_row<kTileCount>(row, [&](auto index) {
    constexpr int kRow = decltype(index)::value;
    if constexpr (kTiles[kRow].phases == 0) {
      constexpr auto kernel = convt2d_scroll_kernel<T, kRow>;
      allow_shared_memory<kernel>(params.shared_bytes);
      kernel<<<static_cast<unsigned>(blocks), threads(params.warpgroups), params.shared_bytes,
               static_cast<cudaStream_t>(stream)>>>(params, map);
      check_launch("convt2d_scroll_kernel");
    }
  });
}

}  // namespace convt2d::cuda::scroll
