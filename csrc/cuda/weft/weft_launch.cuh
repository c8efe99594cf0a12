// From a row of kRows to its kernel, for one type.
#pragma once

#include "cuda/cuda_check.h"
#include "cuda/shared_memory.h"
#include "cuda/visit_row.h"
#include "cuda/weft/weft_kernel.cuh"
#include "cuda/weft/weft_launch.h"

namespace convt2d::cuda::weft {

template <class T>
void launch_rows(int row, const Params& params, const Maps& maps, int64_t blocks, void* stream) {
  visit_row<kTileCount>(row, [&](auto index) {
    constexpr int kRow = kRows[decltype(index)::value];
    constexpr auto kernel = convt2d_weft_grad_weight_kernel<T, kRow>;
    const int bytes = shared_bytes(params, kWeightTiles[kRow]);
    allow_shared_memory<kernel>(bytes);
    kernel<<<static_cast<unsigned>(blocks), hopper::weight_threads(kWeightTiles[kRow]), bytes,
             static_cast<cudaStream_t>(stream)>>>(params, maps);
    check_launch("convt2d_weft_grad_weight_kernel");
  });
}

}  // namespace convt2d::cuda::weft
