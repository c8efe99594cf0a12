// comb's other way, on sm_90a, whose copy engine brings runs of memory: lines of dY as they lie, each all of what
// a row of pixels meets in a kernel row. Neighbouring pixels share taps, or have theirs side by side, so lines are few copies
// of many bytes, and a pixel's taps are an address in there.
//
//   x    [input channel][pixels of a chunk]
//   dY   [row of pixels][line], between zeros for what is beside dY
//
// A line is (output channel, kernel row), whose columns of dW are neighbours. Channels last, where a kernel row is that of all
// channels and longer than a block's columns, it is a segment of it, of which each pixel's taps are a run of their own
// (`apart`):
//
//   dY   [row of pixels][pixel][line]
//
// A chunk is some rows of pixels, of all images one behind the other; a warp has 32 columns and all input channels of the
// block. Of a pixel a thread loads the four taps of a quad, which are columns of four instructions: so it has four neighbours
// of dW. Which pixels are neighbours along K is free: those of a row, or, where lanes would meet in one bank, of one column.
#pragma once

#include "cuda/comb/comb_config.h"

namespace convt2d::cuda::comb {

// Sixteens of input channels of a tile.
constexpr int kLineTileCount = 2;
CONVT2D_HOST_DEVICE constexpr int line_sixteens(int tile) { return tile == 0 ? 2 : 4; }
constexpr int kQuads = 8;  // of a warp
constexpr int kMostColumns = kWarps * kQuads * kTogether;
constexpr int kStepBytes = 32, kStepWords = kStepBytes / 4;  // of K
constexpr int kStepsAtOnce = 2;
constexpr int kMostLineStages = 6;
constexpr int kLineTableAt = 64;  // behind barriers
static_assert(kMostLineStages * 8 <= kLineTableAt);

// Blocks side by side on a multiprocessor.
CONVT2D_HOST_DEVICE constexpr int line_blocks(int element_bytes, bool strict, int tile) {
  return strict ? 1 : element_bytes == 2 && tile == 0 ? 3 : 2;
}

struct LineParams {
  Params whole;                   // all of the reduction is one piece
  int32_t pixel_rows;             // of all images
  int32_t lines, all_lines;       // of a block, of a group
  int32_t channels;               // of dY, of a group
  int32_t columns, quads;         // of a block
  int32_t line_columns;           // of a line
  int32_t apart;                  // whether pixels have runs of their own,
  int32_t runs;                   // and how many a row of pixels has of a line
  int32_t line_bytes;             // of a copy
  int32_t left, line_room;        // with the zeros before, and all of them
  int32_t first_tap;              // from a line's begin to the first pixel's taps,
  int32_t pixel_step;             // and from there to the next one's
  int32_t line_pitch, row_pitch;  // from one to the next
  int32_t chunk_rows, steps;      // of a chunk: rows of pixels
  int32_t row_words;              // of pixels of a row
  int32_t across;                 // whether neighbours along K are of one column
  int32_t turned;   // whether every second two quads of 16-bit numbers come second pixel first
  int32_t x_piece;  // bytes of x at once, 16 or 4; or 0, where channels are neighbours
  int32_t x_at, laid_pitch;  // in a stage; from one channel to the next
  int32_t stage_bytes, stages, stages_at, shared_bytes;
  FastDivide by_height, by_runs, by_lines, by_segments, by_kernel_h, by_words;
};

}  // namespace convt2d::cuda::comb
