// Picks the tile of a plan at compile time, launches, checks. Each hopper_gather_<mode>.cu instantiates
// this for one way of multiplying.
#pragma once

#include <utility>

#include "cuda/cuda_check.h"
#include "cuda/hopper/hopper_gather.cuh"
#include "cuda/hopper/hopper_launch.h"
#include "cuda/shared_memory.h"

namespace convt2d::cuda::hopper {

template <class M, int ROW>
void launch_tile(const GatherParams& params, cudaStream_t stream) {
  constexpr auto kernel = convt2d_hopper_gather_kernel<M, ROW>;
  const int bytes = shared_map(params, kTiles[ROW]).total;
  const int64_t blocks = static_cast<int64_t>(params.groups) * params.column_tiles *
                         params.h.groups * params.w.groups * params.walkers;
  allow_shared_memory<kernel>(bytes);
  kernel<<<static_cast<unsigned>(blocks), kThreads, bytes, stream>>>(params);
  check_launch("convt2d_hopper_gather_kernel");
}

template <class M, int... ROWS>
void visit_tile(int row, const GatherParams& params, cudaStream_t stream,
                std::integer_sequence<int, ROWS...>) {
  constexpr void (*table[])(const GatherParams&, cudaStream_t) = {launch_tile<M, ROWS>...};
  table[row](params, stream);
}

template <class M>
void launch_gather(int row, const GatherParams& params, void* stream) {
  visit_tile<M>(row, params, static_cast<cudaStream_t>(stream),
                std::make_integer_sequence<int, kTileCount>());
}

}  // namespace convt2d::cuda::hopper
