// Picks the tile of a plan at compile time, launches, checks. Each hopper_gather_<mode>.cu instantiates
// this for one way of multiplying.
#pragma once

#include "cuda/cuda_check.h"
#include "cuda/gather_params.h"
#include "cuda/hopper/hopper_gather.cuh"
#include "cuda/hopper/hopper_launch.h"
#include "cuda/shared_memory.h"
#include "cuda/visit_row.h"

namespace convt2d::cuda::hopper {

template <class M, int ROW>
void launch_tile(const GatherParams& params, cudaStream_t stream) {
  constexpr auto kernel = convt2d_hopper_gather_kernel<M, ROW>;
  const int bytes = shared_map(params, kTiles[ROW]).total;
  const int64_t blocks = combinations(params) * params.walkers;
  allow_shared_memory<kernel>(bytes);
  kernel<<<static_cast<unsigned>(blocks), kThreads, bytes, stream>>>(params);
  check_launch("convt2d_hopper_gather_kernel");
}

template <class M>
void launch_gather(int row, const GatherParams& params, void* stream) {
  visit_row<kTileCount>(row, [&](auto index) {
    launch_tile<M, decltype(index)::value>(params, static_cast<cudaStream_t>(stream));
  });
}

}  // namespace convt2d::cuda::hopper
