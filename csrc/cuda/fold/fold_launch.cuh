// From a row of kTiles to its kernel.
#pragma once

#include "cuda/cuda_check.h"
#include "cuda/fold/fold_crossed.cuh"
#include "cuda/fold/fold_flat_halves.cuh"
#include "cuda/fold/fold_kernel.cuh"
#include "cuda/fold/fold_launch.h"
#include "cuda/shared_memory.h"
#include "cuda/visit_row.h"

namespace convt2d::cuda::fold {

template <class T, int ROW>
constexpr auto kernel_of() {
  if constexpr (kTiles[ROW].crossed)
    return convt2d_fold_crossed_kernel<ROW>;
  else if constexpr (kTiles[ROW].flat)
    return convt2d_fold_flat_kernel<T, ROW>;
  else
    return convt2d_fold_kernel<T, ROW>;
}

// `row` is one of FIRST to END - 1.
template <class T, int FIRST, int END>
void launch_rows(int row, const Params& params, const Maps& maps, int64_t blocks, void* stream) {
  visit_row<END - FIRST>(row - FIRST, [&](auto index) {
    constexpr int kRow = FIRST + decltype(index)::value;
    constexpr auto kernel = kernel_of<T, kRow>();
    allow_shared_memory<kernel>(params.shared_bytes);
    kernel<<<static_cast<unsigned>(blocks), threads(kTiles[kRow]), params.shared_bytes,
             static_cast<cudaStream_t>(stream)>>>(params, maps);
    check_launch(kTiles[kRow].crossed ? "convt2d_fold_crossed_kernel"
                 : kTiles[kRow].flat  ? "convt2d_fold_flat_kernel"
                                      : "convt2d_fold_kernel");
  });
}

}  // namespace convt2d::cuda::fold
