// Picks the tile of a plan at compile time, launches, checks. Each igemm_weight_<mode>.cu instantiates
// this for one way of multiplying.
#pragma once

#include "cuda/cuda_check.h"
#include "cuda/igemm/igemm_grad_weight.cuh"
#include "cuda/igemm/igemm_launch.h"
#include "cuda/shared_memory.h"
#include "cuda/visit_row.h"

namespace convt2d::cuda::igemm {

template <class M>
void launch_weight(int row, const WeightParams& params, int64_t blocks, void* stream) {
  visit_row<weight_tile_count(sizeof(typename M::Element))>(row, [&](auto index) {
    constexpr auto kernel = convt2d_igemm_grad_weight_kernel<M, decltype(index)::value>;
    const int bytes = weight_map(params, sizeof(typename M::Element)).total;
    allow_shared_memory<kernel>(bytes);
    kernel<<<static_cast<unsigned>(blocks),
             32 * (params.warps_m * params.warps_n + params.producers), bytes,
             static_cast<cudaStream_t>(stream)>>>(params);
    check_launch("convt2d_igemm_grad_weight_kernel");
  });
}

}  // namespace convt2d::cuda::igemm
