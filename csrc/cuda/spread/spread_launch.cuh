// From a row of kTiles to its kernel.
#pragma once

#include "cuda/cuda_check.h"
#include "cuda/shared_memory.h"
#include "cuda/spread/spread_kernel.cuh"
#include "cuda/spread/spread_launch.h"
#include "cuda/visit_row.h"

namespace convt2d::cuda::spread {

template <class T>
void launch_rows(int row, const Params& params, const CUtensorMap& map, void* stream) {
  visit_row<kTileCount>(row, [&](auto index) {
    constexpr int kRow = decltype(index)::value;
    constexpr auto kernel = convt2d_spread_kernel<T, kRow>;
    allow_shared_memory<kernel>(params.shared_bytes);
    kernel<<<static_cast<unsigned>(params.walkers), kThreads, params.shared_bytes,
             static_cast<cudaStream_t>(stream)>>>(params, map);
    check_launch("convt2d_spread_kernel");
  });
}

}  // namespace convt2d::cuda::spread
