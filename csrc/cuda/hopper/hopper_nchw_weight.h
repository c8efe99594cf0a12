// hopper, grad_weight of NCHW tensors: what one block computes, and the numbers it is told.
//
//   dW[ci, co, tap] = sum over pixels of x[ci, pixel] * dY[co, pixel * stride - near_pad + tap * d]
//
// As a GEMM: rows M = output channels, columns N = input channels, reduction K = the pixels of x, 128 bytes of them a
// K tile. Planes of x are rows along K as they lie, so the copy engine brings them as wgmma wants its second operand,
// swizzled. The first operand comes from registers: the copy engine brings those rows of dY that a tile's pixels meet,
// with zeros around them, and consumers fetch from there what a tap wants, wherever it stands.
//
//   x    [input channel][128 B of pixels]
//        and, in strict fp32, what the tensor core cuts off of it, by three warps
//   dY   [block of 64 output channels][row][channel][pixel]
//
// A K tile is a run of pixels of a plane, or a part of a row. Where its pixels stand in dY's rows, a table tells, which
// comes with the tile. A block computes `width` input channels x `y_blocks` blocks of output channels x `unit_taps`
// neighbouring taps of one row of the kernel.
//
// Blocks that share dW but not the pixels write partial sums; a second pass adds them in a fixed order (weight_sum.h).
#pragma once

#include <cuda.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/args.h"
#include "core/plan.h"
#include "core/problem.h"
#include "core/types.h"

namespace convt2d::cuda::hopper {

// Two warpgroups multiply, `instructions` each for 32 bytes of K: a tap and 64 output channels times `width` input
// channels. Sums of a thread: width / 2 * instructions.
// Strict fp32 (`strict`): every number is the sum of two that the tensor core takes, so a product is three; and as much
// again goes to the sums of a K tile, which ordinary additions join.
struct NchwWeightTile {
  int width, instructions;
  bool strict = false;
};
constexpr NchwWeightTile kNchwWeightTiles[] = {
    {256, 1}, {128, 2}, {64, 4}, {128, 1, true}, {64, 2, true}};
constexpr int kNchwWeightTileCount = sizeof(kNchwWeightTiles) / sizeof(kNchwWeightTiles[0]);
constexpr int kNchwStrictTilesAt = 3;
static_assert(kNchwWeightTiles[kNchwStrictTilesAt].strict &&
              !kNchwWeightTiles[kNchwStrictTilesAt - 1].strict);

constexpr int kKRow = 128, kKSlice = 32, kKSlices = kKRow / kKSlice;  // bytes of pixels
constexpr int kOutChannels = 64;                                      // rows of an instruction
constexpr int kNchwGroups = 2, kNchwConsumers = 128 * kNchwGroups;
constexpr int kNchwThreads = kNchwConsumers + 128;
constexpr int kNchwConsumerRegisters = 232, kNchwProducerRegisters = 32;

// Everything a block needs, passed by value. 32-bit element offsets: larger tensors are declined.
struct NchwWeightParams {
  void* weight;     // written when there is one piece
  float* partials;  // else [pieces][kh][kw][ci][co]
  int32_t piece_floats;
  int32_t weight_stride[4];
  int32_t batch, groups, rows, columns;  // channels of one group: of x, of dY
  int32_t x_h, x_w, y_h, y_w;            // extents
  int32_t stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
  int32_t kernel_h, kernel_w;
  int32_t unit_taps, y_blocks;                 // of a block
  int32_t row_blocks, column_blocks, units_w;  // blocks side by side; units of a row of the kernel
  int32_t element_bytes;
  int32_t runs;                   // K tiles are runs of a plane, else parts of rows
  int32_t image_tiles;            // K tiles of an image
  int32_t row_tiles;              // of a row, if they are parts of rows
  int32_t patch_rows, patch_row;  // rows of dY that come with a tile; bytes of one
  int32_t stages, split;
};

// What the copy engine is told.
struct NchwWeightMaps {
  CUtensorMap x, y;
};

CONVT2D_HOST_DEVICE int tile_pixels(const NchwWeightParams& p) { return kKRow / p.element_bytes; }
CONVT2D_HOST_DEVICE int y_block_bytes(const NchwWeightParams& p) {
  return p.patch_rows * kOutChannels * p.patch_row;
}
CONVT2D_HOST_DEVICE constexpr int x_bytes(NchwWeightTile tile) { return tile.width * kKRow; }
CONVT2D_HOST_DEVICE constexpr int low_bytes(NchwWeightTile tile) {
  return tile.strict ? x_bytes(tile) : 0;
}
CONVT2D_HOST_DEVICE int copied_bytes(const NchwWeightParams& p, NchwWeightTile tile) {
  return x_bytes(tile) + p.y_blocks * y_block_bytes(p);
}
CONVT2D_HOST_DEVICE int stage_bytes(const NchwWeightParams& p, NchwWeightTile tile) {
  return copied_bytes(p, tile) + low_bytes(tile);
}

// Shared memory: barriers, for each stage where its pixels stand, more barriers for strict fp32, the stages, and what a tap beyond the kernel's last
// would read behind them.
constexpr int kMostNchwStages = 8, kMostTilePixels = 64;
constexpr int kNchwTablesAt = 16 * kMostNchwStages, kNchwStagesAt = 3072, kNchwReach = 1024;
constexpr int kNchwSplitAt = kNchwTablesAt + kMostNchwStages * kMostTilePixels * 4;  // barriers
static_assert(kNchwSplitAt + kMostNchwStages * 8 <= kNchwStagesAt);
CONVT2D_HOST_DEVICE int nchw_shared_bytes(const NchwWeightParams& p, NchwWeightTile tile) {
  return kNchwStagesAt + p.stages * stage_bytes(p, tile) + kNchwReach;
}

// Whose grad_weight this is.
inline bool is_nchw(const Problem& problem) {
  return problem.x_layout == Layout::nchw && problem.y_layout == Layout::nchw;
}
// Every plan there is, in no order; and the best. `reason` says why there is none.
std::vector<Plan> nchw_weight_plans(const Problem& problem, const Device& device,
                                    std::string& reason);
Decision nchw_weight_plan(const Problem& problem, const Device& device);
// What a plan's kernel is told, and how many blocks it has.
NchwWeightParams nchw_weight_params(const Problem& problem, const Plan& plan, const Args& args);
NchwWeightMaps nchw_weight_maps(const NchwWeightParams& params, int row, const Args& args);
int64_t nchw_weight_blocks(const NchwWeightParams& params);

void launch_nchw_grad_weight(const Problem& problem, const Plan& plan, const Args& args);

// hopper_nchw_weight.cu
void launch_nchw_weight(DType dtype, int row, const NchwWeightParams& params,
                        const NchwWeightMaps& maps, int64_t blocks, void* stream);

}  // namespace convt2d::cuda::hopper
