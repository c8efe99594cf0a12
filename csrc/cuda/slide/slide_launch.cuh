// From a row of kTiles to its kernel.
#pragma once

#include "cuda/cuda_check.h"
#include "cuda/shared_memory.h"
#include "cuda/slide/slide_kernel.cuh"
#include "cuda/slide/slide_launch.h"
#include "cuda/visit_row.h"

namespace convt2d::cuda::slide {

template <class T>
void launch_rows(int row, const Params& params, const CUtensorMap& map, int64_t blocks,
                 void* stream) {
  visit_row<kTileCount>(row, [&](auto index) {
    constexpr int kRow = decltype(index)::value;
    constexpr auto kernel = convt2d_slide_kernel<T, kRow>;
    allow_shared_memory<kernel>(params.shared_bytes);
    kernel<<<static_cast<unsigned>(blocks), kThreads, params.shared_bytes,
             static_cast<cudaStream_t>(stream)>>>(params, map);
    check_launch("convt2d_slide_kernel");
  });
}

}  // namespace convt2d::cuda::slide
