// From a row of kTiles to its kernel, for one type.
#pragma once

#include "cuda/cuda_check.h"
#include "cuda/shared_memory.h"
#include "cuda/tuft/tuft_kernel.cuh"
#include "cuda/tuft/tuft_launch.h"
#include "cuda/visit_row.h"

namespace convt2d::cuda::tuft {

template <class T>
void launch_rows(int row, const Params& params, const Maps& maps, int64_t blocks, void* stream) {
  visit_row<kTileCount>(row, [&](auto index) {
    constexpr int kRow = decltype(index)::value;
    if constexpr (has_tile(kRow, sizeof(T))) {
      constexpr auto kernel = convt2d_tuft_kernel<T, kRow>;
      allow_shared_memory<kernel>(params.shared_bytes);
      kernel<<<static_cast<unsigned>(blocks), threads(kTiles[kRow]), params.shared_bytes,
               static_cast<cudaStream_t>(stream)>>>(params, maps);
      check_launch("convt2d_tuft_kernel");
    }
  });
}

}  // namespace convt2d::cuda::tuft
