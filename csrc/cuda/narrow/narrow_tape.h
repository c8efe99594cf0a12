// narrow's tapes: sums that are whole outputs, so that nothing is collected. For layers whose rows double (stride 2 along
// rows).
//
// Rows of the GEMM are pixels, its columns (row of the destination, pair of outputs): two neighbours in a row of y, of all
// that lie where a pixel does, its unit. A step to the side is another operand, the same pixels moved by one:
//
//   y[row + r][unit][column] += sum over step, ci of x[row][ci][unit + step] * w[ci][...](r, column, step)
//
// Operands are registers, so in NCHW a step costs nothing: a thread has four neighbouring pixels and those beside them, and
// takes other ones of these. NHWC fetches each step (ldmatrix). As in ribbons, a row of x adds to several rows of the
// destination; when it is done, the sums of one are, and go to memory from registers, and the others move up by one.
//
// A block has one to four teams, warpgroups with 128 pixels each, which share the weights and nothing else. A team goes down
// its stretches from row to row; all teams have as many rows, to one, whatever image these are of. A thread of each asks the
// copy engine, for all stages before anything else.
//
//   weights    [16 B of channels][step][column][16 B]
//   x          of a team, a ring of chunks: [box of pixels][image][channel][32, 64 or 128 B], swizzled;
//              NHWC: [pixel][64 or 128 B]
#pragma once

#include <cuda.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/args.h"
#include "core/plan.h"
#include "core/problem.h"
#include "cuda/narrow/narrow_config.h"

namespace convt2d::cuda::narrow {

struct Tape {
  int row;    // columns of a row of the destination
  int span;   // rows of the destination that a row of x belongs to
  int reach;  // pixels to either side
  int teams;  // of a block, at most
};
// In Plan.row they come behind the ribbons.
constexpr Tape kTapes[] = {{16, 2, 1, 4}, {8, 3, 1, 4}, {4, 3, 1, 4}, {4, 5, 2, 3}};
constexpr int kTapeCount = sizeof(kTapes) / sizeof(kTapes[0]);

constexpr int kTapePixels = 128, kTeamThreads = 128, kMostTeams = 4, kMostTapeStages = 16;
// Pixels of a stretch's edge that another stretch has: a thread's.
constexpr int kTapeEdge = 4;

// Sums move up by eights of columns. Where a row has half of that, they do so every second time, and in between weights are
// those of four columns earlier, behind as many zeros: columns as the instruction has them, and as they lie.
CONVT2D_HOST_DEVICE constexpr int tape_spare(Tape tape) { return tape.row % 8; }
CONVT2D_HOST_DEVICE constexpr int tape_columns(Tape tape) {
  return (tape.row * tape.span + tape_spare(tape) + 7) / 8 * 8;
}
CONVT2D_HOST_DEVICE constexpr int tape_stored(Tape tape) {
  return tape_columns(tape) + tape_spare(tape);
}
CONVT2D_HOST_DEVICE constexpr int tape_steps(Tape tape) { return 2 * tape.reach + 1; }
CONVT2D_HOST_DEVICE constexpr int tape_slice_weights(Tape tape) {
  return tape_steps(tape) * tape_stored(tape) * kSliceBytes;
}

// Everything a block needs, passed by value. What has the same name as in Params is the same.
struct TapeParams {
  void* destination;
  const void* bias;
  const void* weight;
  const void* source;
  int32_t weight_group, weight_reduce, weight_column, weight_h, weight_w;
  int32_t batch, groups, reduce, columns;
  int32_t x_h, x_w, y_h, y_w;
  int32_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
  int32_t number_bytes, channels_last;
  int32_t x_channel, x_pixel, y_channel, y_pixel;
  int32_t chunks, chunk_slices;  // of input channels
  int32_t reach;
  int32_t run, images, line;
  int32_t line_bits;     // 1 << line_bits numbers are a line
  int32_t units;         // of a row of y
  int32_t sweeps, step;  // stretches, and units from one to the next
  int32_t whole;         // rows of y are whole 16 bytes
  FastDivide by_run, by_columns, by_row_columns, by_dilation_h, by_dilation_w, by_sweeps, by_rows;
  int32_t first_row, rows;  // of the destination
  int32_t strands, strand_rows, longer;  // teams; rows of each; how many have one more
  int32_t teams;                         // of a block
  int32_t stages, stage_bytes, box_bytes;
  int32_t zeros_at, weights_at, stages_at, shared_bytes;
};

constexpr int kTapeHeader = kMostTeams * kMostTapeStages * 16;

// Every plan there is, or why there is none; the best; and what a launch needs.
std::vector<Plan> tape_plans(const Problem& problem, const Device& device, std::string& reason);
Decision tape_plan(const Problem& problem, const Device& device);
TapeParams tape_params_of(const Problem& problem, const Plan& plan, const Args& args);
CUtensorMap tape_map_of(const TapeParams& params);
constexpr int tape_blocks(const TapeParams& p) { return (p.strands + p.teams - 1) / p.teams; }

void launch_tape(DType dtype, int tape, const TapeParams& params, const CUtensorMap& map,
                 void* stream);

}  // namespace convt2d::cuda::narrow
