// heddle, grad_input: NCHW tensors of few channels, bound by reading dY.
//
//   dX[ci, pixel] = sum over taps and co of dY[co, pixel * stride - near_pad + tap * d] * w[ci, co, tap]
//
// As a GEMM on mma.sync: rows M = pixels of a row of x, columns N = input channels, reduction K = (tap, output channel). As
// in grad_weight, a block goes down a strip of x, `step_rows` rows at a time, and brings each line of dY once, as it lies,
// with zeros around it. A lane fetches its operands from there number by number, wherever stride, tap and the line's place
// among 16 bytes put them; weights lie in shared memory as the instruction wants them, and serve two tiles of 16 pixels.
//
//   dY       [slot of the ring][output channel][16 bytes of memory]
//   weights  [8 input channels][tap][slice of output channels][lane]
#pragma once

#include <string>
#include <vector>

#include "core/args.h"
#include "core/plan.h"
#include "core/problem.h"
#include "cuda/device/index.cuh"

namespace convt2d::cuda::heddle {

constexpr int kInputWarps = 8, kInputThreads = kInputWarps * 32;
constexpr int kTilePixels = 16, kTilesAtOnce = 2;  // of a warp
constexpr int kInputTileCount = 2;                 // eights of input channels of a warp: one or two
constexpr int kStrictSlices = 4;                   // that are summed apart

struct InputParams {
  const void *y, *weight;
  void* x;
  int32_t weight_stride[4];
  int32_t batch, groups, rows, columns;  // of a group: input, output channels
  int32_t x_h, x_w, y_h, y_w, y_plane;
  int32_t stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, kernel_h, kernel_w;
  // Lines of dY of a step, what the next one adds, from one kernel row, and row of x, to the next. They are `line_step`
  // rows apart, or, where steps share none, only those that taps read: `apart`.
  int32_t line_step, lines, new_lines, tap_lines, row_lines, apart;
  int32_t step_rows, width;  // pixels of a step
  int32_t slices;            // of output channels, of a tap: 8 words or 16 numbers of 16 bits each
  int32_t channels;          // of all slices
  int32_t y_vectors, y_pitch, slots, stages;
  int32_t pixel_warps, input_warps, row;  // eights of a warp: row + 1
  int32_t in_blocks, pieces, steps;
  int32_t weights_at;  // behind the slots
  FastDivide by_vectors, by_rows, by_tiles;
};

// Every plan there is, in no order. `reason` says why there is none.
std::vector<Plan> input_plans(const Problem& problem, const Device& device, std::string& reason);
Decision input_plan(const Problem& problem, const Device& device);
InputParams input_params(const Problem& problem, const Plan& plan, const Args& args);
int64_t input_blocks(const InputParams& params);
int input_shared_bytes(const InputParams& params, bool strict);

void launch_input(const Problem& problem, const InputParams& params, void* stream);

}  // namespace convt2d::cuda::heddle
