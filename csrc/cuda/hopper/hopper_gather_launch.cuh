// Picks the tile of a plan at compile time, launches, checks. Each hopper_gather_<mode>.cu instantiates
// this for a part of the table, so that none compiles for long.
#pragma once

#include "cuda/cuda_check.h"
#include "cuda/gather_params.h"
#include "cuda/hopper/hopper_gather.cuh"
#include "cuda/hopper/hopper_launch.h"
#include "cuda/shared_memory.h"
#include "cuda/visit_row.h"

namespace convt2d::cuda::hopper {

template <class M, int ROW, bool BROUGHT>
void launch_kernel(const GatherParams& params, const TensorMaps& maps, cudaStream_t stream) {
  constexpr auto kernel = convt2d_hopper_gather_kernel<M, ROW, BROUGHT>;
  const int bytes = shared_map(params, kTiles[ROW]).total;
  allow_shared_memory<kernel>(bytes);
  kernel<<<static_cast<unsigned>(blocks_of(params)), threads(kTiles[ROW]), bytes, stream>>>(params,
                                                                                            maps);
  check_launch("convt2d_hopper_gather_kernel");
}

template <class M, int ROW>
void launch_tile(const GatherParams& params, const TensorMaps& maps, cudaStream_t stream) {
  if constexpr (brought_apart<M>(kTiles[ROW])) {
    if (params.brought_pieces) return launch_kernel<M, ROW, true>(params, maps, stream);
  }
  launch_kernel<M, ROW, false>(params, maps, stream);
}

// COUNT rows of the table, from row FIRST on.
template <class M, int FIRST, int COUNT>
void launch_rows(int row, const GatherParams& params, const TensorMaps& maps, void* stream) {
  visit_row<COUNT>(row - FIRST, [&](auto index) {
    launch_tile<M, FIRST + decltype(index)::value>(params, maps, static_cast<cudaStream_t>(stream));
  });
}

}  // namespace convt2d::cuda::hopper
