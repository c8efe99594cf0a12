// From a row of kTiles to its kernel of planes, for one type.
#pragma once

#include "cuda/cuda_check.h"
#include "cuda/scroll/scroll_launch.h"
#include "cuda/scroll/scroll_planes.cuh"
#include "cuda/shared_memory.h"
#include "cuda/visit_row.h"

namespace convt2d::cuda::scroll {

template <class T>
void launch_planes(int row, int64_t blocks, const PlaneParams& params, void* stream) {
  visit_row<kTileCount>(row, [&](auto index) {
    constexpr int kRow = decltype(index)::value;
    if constexpr (has_planes(kTiles[kRow], sizeof(T))) {
      constexpr auto kernel = convt2d_scroll_planes_kernel<T, kRow>;
      allow_shared_memory<kernel>(params.shared_bytes);
      kernel<<<static_cast<unsigned>(blocks), threads_of(params), params.shared_bytes,
               static_cast<cudaStream_t>(stream)>>>(params);
      check_launch("convt2d_scroll_planes_kernel");
    }
  });
}

}  // namespace convt2d::cuda::scroll
