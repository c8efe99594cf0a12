// From a row of kTiles to its kernel, for one type.
#pragma once

#include "cuda/cuda_check.h"
#include "cuda/plain/plain_kernel.cuh"
#include "cuda/plain/plain_launch.h"
#include "cuda/plain/plain_plan.h"
#include "cuda/plain/plain_weight_kernel.cuh"
#include "cuda/shared_memory.h"
#include "cuda/visit_row.h"

namespace convt2d::cuda::plain {

template <class T, bool FORWARD>
void launch_rows(int row, const Params& params, const Maps& maps, void* stream) {
  visit_row<kTileCount>(row, [&](auto index) {
    constexpr auto kernel = convt2d_plain_kernel<T, decltype(index)::value, FORWARD>;
    allow_shared_memory<kernel>(params.shared_bytes);
    kernel<<<static_cast<unsigned>(blocks_of(params)), kThreads, params.shared_bytes,
             static_cast<cudaStream_t>(stream)>>>(params, maps);
    check_launch("convt2d_plain_kernel");
  });
}

template <class T>
void launch_weight_rows(int row, const WeightParams& params, const Maps& maps, void* stream) {
  visit_row<kWeightTileCount>(row, [&](auto index) {
    constexpr int kWidth = kWeightWidths[decltype(index)::value];
    constexpr auto kernel = convt2d_plain_grad_weight_kernel<T, kWidth>;
    const int bytes = shared_bytes(params, kWidth);
    allow_shared_memory<kernel>(bytes);
    kernel<<<static_cast<unsigned>(blocks_of(params)), kThreads, bytes,
             static_cast<cudaStream_t>(stream)>>>(params, maps);
    check_launch("convt2d_plain_grad_weight_kernel");
  });
}

}  // namespace convt2d::cuda::plain
