// narrow's grad_weight: a GEMM on `mma.sync` that leaves x as it lies, each number of it fetched once, by the thread that
// multiplies it.
//
//   dW[ci, co, tap] = sum over pixels of x[ci, pixel] * dY[co, pixel * stride - near_pad + tap * d]
//
// Rows M = input channels, columns N = (kh, co, kw), or (kh, kw, co) in channels-last, K = pixels. Nearly all bytes are x's,
// so a warp has 64 input channels and all columns, and its lanes copy (cp.async) x to a ring that each lane has for itself:
// nobody waits for another. Which pixels are neighbours along K, and which channels are rows, is free as long as operands
// agree, so what a lane (g, t) has of a step, 16 bytes for each 8 channels, are operands as they are:
//
//   NCHW  the t-th 4 or 8 pixels, 16 bytes, of channels g, g + 8, g + 16 ... of the warp's
//   NHWC  as many channels, from the first one behind those of lanes before, of the same pixels; in 16 bits two pixels
//         become a word
//
// A block goes through bands, some rows of an image each. What its pixels meet of dY lies in shared memory as in memory,
// with zeros around it: [row][output channel] lines of pixels, channels-last [row] lines. While a band is multiplied, the
// next one's comes (cp.async, by 16 bytes if rows of dY are whole ones, or by words). Warps of a block differ in input channels (`channel_warps`) and in steps
// (`pixel_warps`); the sums of the latter are added up in the end.
//
// Blocks that share dW, but not pixels, write partial sums; a second pass adds them in a fixed order (weight_sum.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/args.h"
#include "core/plan.h"
#include "core/problem.h"
#include "cuda/device/index.cuh"

namespace convt2d::cuda::narrow {

// Of a warp: columns, in eights, and input channels, in sixteens.
struct WeightTile {
  int columns, inputs;
  bool strict = false;
};
constexpr WeightTile kWeightTiles[] = {{6, 4}, {6, 4, true}};
constexpr int kWeightTileCount = sizeof(kWeightTiles) / sizeof(kWeightTiles[0]);
constexpr int kFirstStrictWeight = 1;
constexpr int kMostWeightColumns = kWeightTiles[kFirstStrictWeight - 1].columns * 8;

constexpr int kWeightWarps = 8, kWeightThreads = kWeightWarps * 32;
constexpr int kWeightHeader = 128;  // barriers
CONVT2D_HOST_DEVICE constexpr int warp_inputs(WeightTile tile) { return tile.inputs * 16; }
CONVT2D_HOST_DEVICE constexpr int weight_sums(WeightTile tile) {
  return tile.columns * tile.inputs * 4;
}
constexpr int kWeightStages = 4;
// Of x, of a lane and of a warp in a step; of all stages.
CONVT2D_HOST_DEVICE constexpr int lane_pieces(WeightTile tile) { return tile.inputs * 2; }
CONVT2D_HOST_DEVICE constexpr int step_bytes(WeightTile tile) { return lane_pieces(tile) * 512; }
CONVT2D_HOST_DEVICE constexpr int ring_bytes(WeightTile tile) {
  return kWeightWarps * kWeightStages * step_bytes(tile);
}

// Of a step: pixels of a lane, and of the four that share a row of the GEMM.
CONVT2D_HOST_DEVICE constexpr int lane_pixels(int number_bytes) { return 16 / number_bytes; }
CONVT2D_HOST_DEVICE constexpr int step_pixels(int number_bytes) {
  return 4 * lane_pixels(number_bytes);
}

// Everything a block needs, passed by value. 32-bit element offsets: larger tensors are declined.
struct WeightParams {
  const void *x, *y;
  void* weight;     // written when there is one piece
  float* partials;  // else [pieces][kh][kw][ci][co]
  int32_t piece_floats;
  int32_t input_stride;  // of dW or of a piece: from an input channel to the next
  int32_t channels_last;
  int32_t batch, groups, rows, columns;  // of a group: input, output channels
  int32_t x_h, x_w, x_plane, y_h, y_w;
  int32_t stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, kernel_h, kernel_w;
  int32_t band_rows, bands;  // of an image
  int32_t items, split;      // bands of all images, and pieces of these
  int32_t channel_warps, pixel_warps, channel_blocks;
  int32_t y_lines, line_pieces;  // of a band; copies of a line,
  int32_t y_piece;               // of so many bytes
  int32_t lead;                  // numbers of a line before a row's first
  int32_t row_lines;             // lines of a row of dY: its channels, or one
  int32_t line_bytes, y_bytes;   // in shared memory: from line to line, all of a band's
  int32_t row_step, pixel_step;  // in bytes there: what a row, a pixel of x makes
  int32_t y_image, y_row, y_channel,
      y_row_numbers;  // in numbers of dY: strides of lines, and a row's length
  int32_t shared_bytes;
  int32_t same_bytes;  // a choice of bytes that leaves a word as it is
  FastDivide by_w, by_bands, by_pieces, by_row_lines, by_split, by_channel_blocks, by_channel_warps;
  int32_t column_at[kMostWeightColumns];  // bytes from a pixel's place to what a column reads
  int32_t column_to
      [kMostWeightColumns];  // numbers of dW, or of a piece; negative: there is no such column
};

std::vector<Plan> weight_plans(const Problem& problem, const Device& device, std::string& reason);
Decision weight_plan(const Problem& problem, const Device& device);
WeightParams weight_params_of(const Problem& problem, const Plan& plan, const Args& args);
int64_t weight_blocks(const WeightParams& params);

// narrow_weight_halves.cu, narrow_weight_words.cu
void launch_weight_halves(const Problem& problem, int row, const WeightParams& params,
                          void* stream);
void launch_weight_words(const Problem& problem, int row, const WeightParams& params, void* stream);

}  // namespace convt2d::cuda::narrow
