// Picks the tile of a plan at compile time, launches, checks. Each igemm_gather_<mode>.cu instantiates
// this for one way of multiplying.
#pragma once

#include "cuda/cuda_check.h"
#include "cuda/gather_params.h"
#include "cuda/igemm/igemm_gather.cuh"
#include "cuda/igemm/igemm_launch.h"
#include "cuda/shared_memory.h"
#include "cuda/visit_row.h"

namespace convt2d::cuda::igemm {

template <class M, int ROW, bool PLANES>
void launch_kernel(const GatherParams& params, cudaStream_t stream) {
  constexpr TileRow tile = kTiles[M::kSplit && ROW < kFirstSplitTile ? kFirstSplitTile : ROW];
  constexpr auto kernel = convt2d_igemm_gather_kernel<M, tile.columns, tile.slots, PLANES>;
  const int bytes = shared_map(params, tile.columns, tile.slots).total;
  const int64_t blocks = combinations(params) * params.walkers;
  allow_shared_memory<kernel>(bytes);
  kernel<<<static_cast<unsigned>(blocks), 32 * params.warps, bytes, stream>>>(params);
  check_launch("convt2d_igemm_gather_kernel");
}

template <class M, int ROW>
void launch_tile(const GatherParams& params, cudaStream_t stream) {
  if constexpr (sizeof(typename M::Element) == 4) {
    if (in_planes(params)) return launch_kernel<M, ROW, true>(params, stream);
  }
  launch_kernel<M, ROW, false>(params, stream);
}

template <class M>
void launch_gather(int row, const GatherParams& params, void* stream) {
  visit_row<kTileCount>(row, [&](auto index) {
    launch_tile<M, decltype(index)::value>(params, static_cast<cudaStream_t>(stream));
  });
}

}  // namespace convt2d::cuda::igemm
