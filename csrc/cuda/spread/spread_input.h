// spread, grad_input: what one block computes, and the numbers it is told.
//
// Of few output channels, channels last: what a pixel's kernel row reads of dY is one run of memory, as long as a kernel row
// of weights, which is one too. So K is all of a kernel, packed,
//
//   dx[pixel][ci] = sum over (kh, kw, co) of dy[pixel * stride + kh][(pixel * stride, kw, co)] * w[ci][(kh, kw, co)]
//
//   pixels     of a tile, all of K, in a ring of panels: [panel of 128 B of K][pixel][128 B], swizzled; seven warps write
//              them out
//   weights    a ring of panels of 128 channels, which the copy engine brings as they lie
//
// A tile is a run of pixels, whatever rows and images they are in. Its panels stay while blocks of 128 channels go by; those
// of the next tile are written where there is room, or when the last of these blocks has read one.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/args.h"
#include "core/plan.h"
#include "core/types.h"
#include "cuda/device/index.cuh"
#include "cuda/spread/spread_config.h"

namespace convt2d::cuda::spread {

struct InputTile {
  int blocks;  // of 64 pixels, of a warpgroup
};
constexpr InputTile kInputTiles[] = {{2}, {1}};
constexpr int kInputTileCount = sizeof(kInputTiles) / sizeof(kInputTiles[0]);

constexpr int kInputWidth = 128;  // channels of an instruction
constexpr int kInputStage = kInputWidth * kLine;
constexpr int kWriters = kBringers - 1;  // the other warp asks the copy engine
constexpr int kMostPanels = 12, kMostSlots = 16, kMostInputStages = 6;
constexpr int kFours = 5;  // times four pixels that a thread has under way

CONVT2D_HOST_DEVICE constexpr int tile_pixels(InputTile tile) {
  return kGroups * tile.blocks * kRows;
}

// How channels are stored: one by one, two at once, or 16 bytes: then columns are dealt to channels so that a thread's are
// neighbours.
enum InputOrder : int32_t { kSingle = 0, kPairs = 1, kDealtOut = 2 };
// Columns of a thread that are 16 bytes of dx, and what those of the four threads of a row are.
CONVT2D_HOST_DEVICE constexpr int dealt_channels(int bytes) { return 16 / bytes; }
CONVT2D_HOST_DEVICE constexpr int dealt_row(int bytes) { return 4 * dealt_channels(bytes); }

// Everything a block needs, passed by value. 32-bit element offsets: larger tensors are declined.
struct InputParams {
  void* destination;
  const void* bias;
  const void* weight;
  const void* source;
  int32_t weight_group, weight_reduce, weight_column, weight_h, weight_w;  // strides
  int32_t batch, groups, reduce, columns;
  int32_t x_h, x_w, y_h, y_w;
  int32_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h;
  int32_t number_bytes;
  int32_t pixels, depth;      // K
  int32_t kernel_row, y_row;  // numbers of a row of the kernel, of dY
  int32_t step,
      lead;  // numbers of dY from a pixel's run to the next; that the first one starts before a row
  int32_t in_words;  // of 16 bits: two numbers of K are a word of dY
  FastDivide by_plane, by_row, by_kernel_row;
  int32_t panels, last_slices;  // of K; instructions of the last one
  int32_t column_blocks;
  InputOrder order;
  int32_t tiles, walkers, stages;
  int32_t slots;  // of panels
  int32_t panels_at, stages_at, shared_bytes;
};

constexpr int kPanelsFullAt = kMostInputStages * 16, kInputHeader = kPanelsFullAt + kMostSlots * 16;

std::vector<Plan> input_plans(const Problem& problem, const Device& device, std::string& reason);
Decision input_plan(const Problem& problem, const Device& device);
InputParams input_params_of(const Problem& problem, const Plan& plan, const Args& args);
CUtensorMap input_map_of(const InputParams& params);

void launch_input(DType dtype, int row, const InputParams& params, const CUtensorMap& map,
                  void* stream);  // spread_input.cu

}  // namespace convt2d::cuda::spread
