// narrow's ribbons: the same sums, each pixel multiplied once, several small blocks a multiprocessor.
//
// Rows of the GEMM are pixels, its columns (row of the destination, phase, co, kw), as in narrow_config.h. A warpgroup goes
// down a stretch of 128 pixels of a row, or of rows of a few images, from row to row of x. A row of x belongs to several rows
// of the destination: an instruction has the columns of all `span` of them, and when a row of x is done, the sums of one row
// of the destination are, and the others move up by one. So x passes through shared memory a chunk of channels at a time, and
// no row of it is kept. Strict fp32 is for `mma.sync`, each warp having 32 pixels.
//
// Rows of all images are one sequence, of which each block has as many, to one. Blocks side by side have stretches side by
// side at the same time: they share edges, and at other times NCHW took up to a fifth longer.
//
//   weights    [slice of channels][16 B of channels][column][16 B]; 16 bits of NCHW [eight columns][channel][16 B], turned by
//              the tensor core; strict fp32 [pair of fragments][lane][16 B], a fragment for each 8 columns, of a slice all
//              high parts, then all low ones
//   x          a ring of chunks: [box of pixels][image][channel][32, 64 or 128 B], swizzled; NHWC: [pixel][32, 64 or 128 B]
//   products   of a row: [column][image][pixel], zeros between images; at the start the weights as they lie in memory, which
//              the copy engine brings before x: asked for behind it, and by 2 bytes, they came 2 to 10 us late
//   turned     NHWC: of a warp's outputs: [phase][pixel][channel], as in y
//
// A unit of outputs are stride_w neighbours in a row of y; a thread collects all channels and phases of one.
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

struct Ribbon {
  int width;   // columns
  int span;    // rows of the destination that a row of x belongs to
  int blocks;  // of a multiprocessor
  bool strict = false;
};
// In Plan.row they come behind kTiles.
constexpr Ribbon kRibbons[] = {
    {24, 2, 3}, {16, 3, 3}, {24, 5, 2}, {24, 2, 2, true}, {16, 3, 2, true}};
constexpr int kFirstStrictRibbon = 3;
constexpr int kMostSpanOfRibbon = 5;
constexpr int kRibbonCount = sizeof(kRibbons) / sizeof(kRibbons[0]);

constexpr int kRibbonPixels = 128, kWarpPixels = 32;
constexpr int kRibbonWarps = kRibbonPixels / kWarpPixels, kRibbonConsumers = kRibbonWarps * 32;
constexpr int kChunkSlices = 4, kMostRibbonStages = 8;

// The thread behind those that multiply asks the copy engine. Where sums are many, it has a warpgroup, which gives registers
// to the other. In 16 bits this keeps enough to collect a row while the next is multiplied, from two buffers of products by
// turns (words: with a buffer of x less, 184 us for 230).
CONVT2D_HOST_DEVICE constexpr bool lends(Ribbon ribbon) {
  return ribbon.span * ribbon.width >= 120;
}
CONVT2D_HOST_DEVICE constexpr bool collects_apart(Ribbon ribbon, int number_bytes) {
  return lends(ribbon) && number_bytes == 2;
}
CONVT2D_HOST_DEVICE constexpr int product_buffers(Ribbon ribbon, int number_bytes) {
  return collects_apart(ribbon, number_bytes) ? 2 : 1;
}
CONVT2D_HOST_DEVICE constexpr int ribbon_threads(Ribbon ribbon) {
  return kRibbonConsumers + (lends(ribbon) ? 128 : 32);
}
// What is left to a warpgroup that lends, of 256 of both.
CONVT2D_HOST_DEVICE constexpr int kept_registers(int number_bytes) {
  return number_bytes == 2 ? 104 : 40;
}

// Eights of columns, and pairs of them; all columns; bytes of weights of a slice.
CONVT2D_HOST_DEVICE constexpr int fragments(Ribbon ribbon) {
  return ribbon.width / 8 * ribbon.span;
}
CONVT2D_HOST_DEVICE constexpr int fragment_pairs(Ribbon ribbon) {
  return (fragments(ribbon) + 1) / 2;
}
CONVT2D_HOST_DEVICE constexpr int all_columns(Ribbon ribbon) { return fragments(ribbon) * 8; }
CONVT2D_HOST_DEVICE constexpr int slice_weights(Ribbon ribbon) {
  return ribbon.strict ? fragment_pairs(ribbon) * 2 * 32 * 16 : all_columns(ribbon) * kSliceBytes;
}

// Everything a block needs, passed by value. What has the same name as in Params is the same.
struct RibbonParams {
  void* destination;
  const void* bias;
  const void* weight;
  const void* source;
  int32_t weight_group, weight_reduce, weight_column, weight_h, weight_w;
  int32_t batch, groups, reduce, columns;
  int32_t x_h, x_w, y_h, y_w;
  int32_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
  int32_t number_bytes, channels_last, strict;
  int32_t x_channel, x_pixel, y_channel, y_pixel;
  int32_t slices, chunks, chunk_slices;  // of input channels
  int32_t reach;
  // Taps by the output of a unit they belong to: the first of each in `tap`; byte of their products from where those of the
  // first column at the unit are.
  int8_t first_tap[kMostPhases + 1];
  int32_t tap[kMostTaps];
  // The same of the first two outputs, as many as `span`; where there is none, any of the other's and 0 instead of 1.
  int32_t two[2][kMostSpanOfRibbon];
  float two_there[2][kMostSpanOfRibbon];
  // Units are two outputs of at most `span` taps each; which are stored at once; with all channels, by way of shared memory.
  int32_t twos, pairs, wide;
  // Columns of a line of outputs: as many as kernel columns, or more, where the compiler knows it (line_columns()). Then so
  // many lines are collected at once, as many as there are; else 0.
  int32_t line_columns, lines_at_once;
  int32_t line_bits;  // 1 << line_bits numbers are a line
  int32_t run, images, line, margin, step, sweeps;
  int32_t units,
      lead;  // of a row of y; of a stretch that is not the first, units less pixels before its own
  int32_t positions;  // units of a stretch, at most
  FastDivide by_positions, by_run, by_columns, by_line, by_dilation, by_sweeps, by_rows;
  // Of the destination; blocks, as many of each stretch; rows of each, and of how many it is one more.
  int32_t first_row, rows, walkers, walker_rows, longer;
  int32_t stages, stage_bytes, box_bytes;
  int32_t products_bytes, turned_bytes;  // turned_bytes: of a warp
  // Weights as they lie: all bytes, and strides, if they lie without gaps from a multiple of 16 bytes on; else threads bring
  // them, in the order of NCHW.
  int32_t raw_bytes, raw_copied, raw_reduce, raw_column, raw_h, raw_w;
  int32_t weights_at, stages_at, products_at, turned_at, shared_bytes;
};

constexpr int kRibbonHeader = (kMostRibbonStages + 1) * 16;
// Floats of a column of products: 4 banks more than all of them, so that each store of a warp meets a bank once.
constexpr int kRibbonPitch = 164;

// Of the table's widths: lines that are collected at once, and columns of each, which other lines have as well.
CONVT2D_HOST_DEVICE constexpr int most_lines(Ribbon ribbon) { return ribbon.span == 2 ? 6 : 2; }
CONVT2D_HOST_DEVICE constexpr int line_columns(Ribbon ribbon) {
  return ribbon.width / most_lines(ribbon);
}

// The units of a stretch, from `first` to before `end`.
struct Units {
  int first, end;
};
CONVT2D_HOST_DEVICE Units units_of(const RibbonParams& p, int sweep) {
  const int first = sweep * p.step + p.lead, end = first + p.step;
  return {sweep == 0 || first < 0 ? 0 : first,
          sweep == p.sweeps - 1 || end > p.units ? p.units : (end < 0 ? 0 : end)};
}

// Every plan there is, or why there is none; the best; and what a launch needs.
std::vector<Plan> ribbon_plans(const Problem& problem, const Device& device, std::string& reason);
Decision ribbon_plan(const Problem& problem, const Device& device);
RibbonParams ribbon_params_of(const Problem& problem, const Plan& plan, const Args& args);
CUtensorMap ribbon_map_of(const RibbonParams& params);

void launch_ribbon(DType dtype, int ribbon, const RibbonParams& params, const CUtensorMap& map,
                   void* stream);

}  // namespace convt2d::cuda::narrow
