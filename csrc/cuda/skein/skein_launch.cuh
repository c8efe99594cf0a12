// From a row of kTiles to its kernel; each skein_<type>.cu instantiates this for one type.
#pragma once

#include "cuda/launch_ranks.cuh"
#include "cuda/shared_memory.h"
#include "cuda/skein/skein_kernel.cuh"
#include "cuda/skein/skein_launch.h"
#include "cuda/skein/skein_plan.h"
#include "cuda/visit_row.h"

namespace convt2d::cuda::skein {

template <class M>
void launch_rows(int row, const Params& params, const Maps& maps, void* stream) {
  visit_row<kTileCount>(row, [&](auto index) {
    constexpr int kRow = decltype(index)::value;
    constexpr auto kernel = convt2d_skein_grad_weight_kernel<M, kRow>;
    const int bytes = shared_bytes(params, kTiles[kRow], sizeof(typename M::Element));
    allow_shared_memory<kernel>(bytes);
    launch_ranks(kernel, clusters_of(params), params.ranks, kThreads, bytes, stream, params, maps);
  });
}

}  // namespace convt2d::cuda::skein
