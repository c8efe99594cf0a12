// From a Plan's row to its kernel, for one type.
#pragma once

#include "cuda/cuda_check.h"
#include "cuda/gauze/gauze_kernel.cuh"
#include "cuda/gauze/gauze_launch.h"
#include "cuda/shared_memory.h"
#include "cuda/visit_row.h"

namespace convt2d::cuda::gauze {

template <class T>
void launch_rows(int row, const Params& params, const Maps& maps, void* stream) {
  visit_row<tiles_of(sizeof(T))>(row, [&](auto index) {
    constexpr auto kernel = convt2d_gauze_kernel<T, decltype(index)::value>;
    allow_shared_memory<kernel>(params.shared_bytes);
    kernel<<<static_cast<unsigned>(params.walkers), threads(kTiles[decltype(index)::value]),
             params.shared_bytes, static_cast<cudaStream_t>(stream)>>>(params, maps);
    check_launch("convt2d_gauze_kernel");
  });
}

}  // namespace convt2d::cuda::gauze
