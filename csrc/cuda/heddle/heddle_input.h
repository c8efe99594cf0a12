// heddle, grad_input: NCHW tensors of few channels, bound by reading dY.
//
//   dX[ci, pixel] = sum over taps and co of dY[co, pixel * stride - near_pad + tap * d] * w[ci, co, tap]
//
// As a GEMM on mma.sync: rows M = pixels of a row of x, columns N = 8 input channels, reduction K = (output channel, tap of a
// kernel row), without gaps. A block goes down a strip of x, row by row; a step is a row of x farther, and brings the lines of
// dY that it is the first to read, as they lie, with zeros around them. A lane fetches its operands from there number by
// number, wherever stride, tap and the line's place among 16 bytes put them, once for all rows of x that read the line: the
// sums of these rows `live` side by side in registers, and every step completes the eldest. Rows of two
// instructions are dealt to pixels such that a lane stores 16 bytes of a channel.
//
//   dY       [stage][line][output channel][16 bytes of memory]
//   weights  [8 input channels][kernel row][slice of K][lane]
#pragma once

#include <string>
#include <vector>

#include "core/args.h"
#include "core/plan.h"
#include "core/problem.h"
#include "cuda/device/index.cuh"
#include "cuda/live_rows.h"

namespace convt2d::cuda::heddle {

constexpr int kInputWarps = 8, kInputThreads = kInputWarps * 32;
constexpr int kInputBlocks = 2;                   // for which a multiprocessor must have registers
constexpr int kLanePixels = 4, kWarpPixels = 32;  // of a row
constexpr int kMostInputStages = 4;
constexpr int kPlaceBytes = 16;   // of a lane's numbers of a slice, at most
constexpr int kStrictSlices = 4;  // that are summed apart

struct InputParams {
  const void *y, *weight;
  void* x;
  int32_t weight_stride[4];
  int32_t batch, groups, rows, columns;  // of a group: input, output channels
  int32_t x_h, x_w, y_h, y_w, y_plane;
  int32_t stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, kernel_h, kernel_w;
  LiveRows step;
  int32_t reduce, slices;   // of K: numbers, and 8 words or 16 numbers of 16 bits
  int32_t channels, width;  // of dY, and pixels, of a block
  int32_t y_vectors, y_pitch, line_bytes, stages;
  int32_t pixel_warps, input_warps, group_warps;
  int32_t whole;  // 1: a lane's pixels exist or do not, and are stored at once
  int32_t in_blocks, group_blocks;
  // A strip is cut into segments of rows of x, whose steps are these. Blocks have `pieces` of all segments.
  int32_t segment_rows, segments, pieces;
  int32_t weights_at, places_at;  // behind the stages
  FastDivide by_vectors, by_cuts, by_tiles;
};

// Every plan there is, in no order. `reason` says why there is none.
std::vector<Plan> input_plans(const Problem& problem, const Device& device, std::string& reason);
Decision input_plan(const Problem& problem, const Device& device);
InputParams input_params(const Problem& problem, const Plan& plan, const Args& args);
int64_t input_blocks(const InputParams& params);
int input_shared_bytes(const InputParams& params);

void launch_input(const Problem& problem, const InputParams& params, void* stream);

}  // namespace convt2d::cuda::heddle
