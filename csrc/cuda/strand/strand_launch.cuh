// From a row of kTiles to its kernel; each strand_<mode>.cu instantiates this for one way of multiplying.
#pragma once

#include <atomic>

#include "cuda/cuda_check.h"
#include "cuda/launch_ranks.cuh"
#include "cuda/shared_memory.h"
#include "cuda/strand/strand_dense.cuh"
#include "cuda/strand/strand_kernel.cuh"
#include "cuda/strand/strand_launch.h"
#include "cuda/strand/strand_plan.h"
#include "cuda/strand/strand_windows.cuh"
#include "cuda/visit_row.h"

namespace convt2d::cuda::strand {

constexpr int kPortableRanks = 8;  // of any GPU with clusters

// Lets a kernel have clusters of more: asked for once a kernel and device.
template <auto KERNEL>
void allow_large_clusters() {
  static std::atomic<uint64_t> allowed{0};  // one bit a device
  int device = 0;
  CONVT2D_CUDA_CHECK(cudaGetDevice(&device));
  const uint64_t bit = uint64_t{1} << (device % 64);
  if (device < 64 && (allowed.load(std::memory_order_relaxed) & bit)) return;
  CONVT2D_CUDA_CHECK(cudaFuncSetAttribute(reinterpret_cast<const void*>(KERNEL),
                                          cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
  allowed.fetch_or(bit, std::memory_order_relaxed);
}

// `row` is one of the first ROWS.
template <class M, int ROWS>
void launch_rows(int row, const Params& params, void* stream) {
  visit_row<ROWS>(row, [&](auto index) {
    constexpr int kRow = decltype(index)::value;
    constexpr auto kernel = convt2d_strand_kernel<M, kRow>;
    constexpr int kBytes = shared_bytes(kTiles[kRow]);
    allow_shared_memory<kernel>(kBytes);
    launch_ranks(kernel, tiles_of(params), params.ranks, kThreads, kBytes, stream, params);
  });
}

// `row` is one of kWindowPositions.
template <class M>
void launch_window_rows(int row, const WindowParams& params, const CUtensorMap& source,
                        const CUtensorMap& weights, void* stream) {
  visit_row<kWindowTileCount>(row, [&](auto index) {
    constexpr auto kernel = convt2d_strand_windows_kernel<M, decltype(index)::value>;
    allow_shared_memory<kernel>(params.shared_bytes);
    if (params.ranks > kPortableRanks) allow_large_clusters<kernel>();
    launch_ranks(kernel, window_tiles_of(params), params.ranks, kWindowThreads, params.shared_bytes,
                 stream, params, source, weights);
  });
}

// `row` is one of kDenseTiles.
template <class M>
void launch_dense_rows(int row, const DenseParams& params, const CUtensorMap& source,
                       const CUtensorMap& weights, void* stream) {
  visit_row<kDenseTileCount>(row, [&](auto index) {
    constexpr auto kernel = convt2d_strand_dense_kernel<M, decltype(index)::value>;
    allow_shared_memory<kernel>(params.shared_bytes);
    launch_ranks(kernel, dense_tiles_of(params), params.ranks, kDenseThreads, params.shared_bytes,
                 stream, params, source, weights);
  });
}

}  // namespace convt2d::cuda::strand
