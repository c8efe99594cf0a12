// From a row of kTiles to its kernel; each reed_<mode>.cu instantiates this for one way of multiplying.
#pragma once

#include "cuda/cuda_check.h"
#include "cuda/reed/reed_held.cuh"
#include "cuda/reed/reed_kernel.cuh"
#include "cuda/reed/reed_launch.h"
#include "cuda/reed/reed_plan.h"
#include "cuda/shared_memory.h"
#include "cuda/visit_row.h"

namespace convt2d::cuda::reed {

// `row` is one of the first ROWS.
template <class M, int ROWS>
void launch_rows(int row, const Params& params, void* stream) {
  visit_row<ROWS>(row, [&](auto index) {
    constexpr int kRow = decltype(index)::value;
    constexpr auto kernel = convt2d_reed_fwd_kernel<M, kRow>;
    const int bytes = shared_bytes(params, kTiles[kRow], sizeof(typename M::Element));
    allow_shared_memory<kernel>(bytes);
    kernel<<<static_cast<unsigned>(blocks_of(params)), threads_of(kTiles[kRow]), bytes,
             static_cast<cudaStream_t>(stream)>>>(params);
    check_launch("convt2d_reed_fwd_kernel");
  });
}

template <class M>
void launch_held(const Held& held, int64_t blocks, int bytes, void* stream) {
  visit_row<kMostHeld - kLeastHeld + 1>(warp_tiles(held.tiles) - kLeastHeld, [&](auto index) {
    constexpr auto kernel = convt2d_reed_held_kernel<M, decltype(index)::value + kLeastHeld>;
    allow_shared_memory<kernel>(bytes);
    kernel<<<static_cast<unsigned>(blocks), kHeldThreads, bytes,
             static_cast<cudaStream_t>(stream)>>>(held);
    check_launch("convt2d_reed_held_kernel");
  });
}

}  // namespace convt2d::cuda::reed
