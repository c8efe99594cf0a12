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

template <class M, int ROW, bool PLANES, bool SHARED>
void launch_kernel(const GatherParams& params, cudaStream_t stream) {
  constexpr bool kPlanned =
      (!M::kSplit || ROW >= kFirstSplitTile) && (!SHARED || kTiles[ROW].shares);
  constexpr TileRow tile = kTiles[kPlanned ? ROW : kFirstSplitTile];
  constexpr auto kernel = convt2d_igemm_gather_kernel<M, tile.columns, tile.slots, PLANES, SHARED>;
  const int bytes = shared_map(params, tile.columns, tile.slots).total;
  allow_shared_memory<kernel>(bytes);
  cudaLaunchAttribute cluster = {};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = cluster.val.clusterDim.z = 1;
  cluster.val.clusterDim.y = params.ranks;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(combinations(params) * params.walkers), params.ranks);
  config.blockDim = dim3(32 * params.warps);
  config.dynamicSmemBytes = bytes;
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = params.ranks > 1;
  CONVT2D_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, params));
}

template <class M, int ROW, bool PLANES>
void launch_sharing(const GatherParams& params, cudaStream_t stream) {
  const auto launch =
      params.shared ? launch_kernel<M, ROW, PLANES, true> : launch_kernel<M, ROW, PLANES, false>;
  launch(params, stream);
}

template <class M, int ROW>
void launch_tile(const GatherParams& params, cudaStream_t stream) {
  if constexpr (sizeof(typename M::Element) == 4) {
    if (in_planes(params)) return launch_sharing<M, ROW, true>(params, stream);
  }
  launch_sharing<M, ROW, false>(params, stream);
}

template <class M>
void launch_gather(int row, const GatherParams& params, void* stream) {
  visit_row<kTileCount>(row, [&](auto index) {
    launch_tile<M, decltype(index)::value>(params, static_cast<cudaStream_t>(stream));
  });
}

}  // namespace convt2d::cuda::igemm
