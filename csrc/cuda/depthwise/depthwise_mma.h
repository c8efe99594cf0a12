// grad_input of 16-bit NCHW, strides 4 and 8, on tensor cores: what a warp owns. sm_80 and up.
//
// A row of dY is pieces of eight numbers, and a product mma.sync's m16n8k16: its rows are 16 pieces side by side, as they lie in
// memory; its K numbers of them, in the rows of dY that one row of x reads first (a block of `stride` rows); its columns
// what becomes of them: (column of x that a piece reaches, row of x: the block's, or the one before). Weights stay in
// registers, in the order that K and columns want, zeros among them. A warp walks down blocks; sums of a row of x
// go on in their accumulators in the next block, and what neighbouring pieces have of a column is handed over once a row.
//
// Of stride 2 it was no faster than lanes, which memory limits there (H200, 2026-11-29: dla_up2 31.4 us for 30.1, dla_up8 27.4 for 33).
#pragma once

#include "cuda/depthwise/depthwise_lanes.h"

namespace convt2d::cuda::depthwise {

constexpr int kMmaPieces = 16, kMmaColumns = 8;  // of a product; numbers of a piece
constexpr int kMmaThreads = 128, kMmaWarps = kMmaThreads / 32;
CONVT2D_HOST_DEVICE constexpr bool on_mma(const LaneKernel& kernel, int element_bytes) {
  return element_bytes == 2 && kernel.stride > 2 && kernel.taps == 2;
}

// Index in kLaneKernels, -1 if mma serves no such problem.
int mma_kernel(const Problem& problem);

// Lanes of a LaneTile are pieces here, an even number; slots are units of a warp.
LaneTile mma_tile(const Problem& problem);

}  // namespace convt2d::cuda::depthwise
