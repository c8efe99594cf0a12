// strand's spans: the same GEMM on wgmma, where the copy engine brings both operands: for rows of many pixels and many channels
// (hifigan_u0), and for images of one pixel, which are a row together (dcgan_g1). A chunk of K is 128 bytes of a row of
// weights; a tile is two or four spans of 32 pixels of a row of x, by up to 128 channels.
//
//   weights   [channel of x][128 bytes of K], swizzled
//   dY        channels last [span][pixel][128 bytes of channels of one tap], swizzled;
//             NCHW [half of a span][span][output channel][what its 16 pixels read of a row], as it lies
//
// Rows of the product are positions, 64 of them a warpgroup's, columns channels of x. In NCHW a position's taps are neighbours, and
// the next position's begin a stride behind: whoever multiplies fetches them word by word. K is shared out to the blocks of a
// cluster.
#pragma once

#include "cuda/strand/strand_config.h"

namespace convt2d::cuda::strand {

constexpr int kSpan = 32, kMostSpanGroups = 2;  // warpgroups, of two spans each
constexpr int kSpanColumns = 128;               // channels that an instruction takes
constexpr int kMostSpanRanks = 16;              // more than eight are for GPUs that are asked
constexpr int kMostSpanThreads = kMostSpanGroups * 128 + 32;  // one more warp asks the copy engine
constexpr int kSpanChunk = 128, kSpanSteps = kSpanChunk / kStep;
constexpr int kMostSpanStages = 16;
constexpr int kSpanBarriers = 1024;  // bytes before the stages

struct SpanParams {
  Params base;               // of the same problem, for what is summed again
  int32_t groups, channels;  // warpgroups; channels of x of a tile
  int32_t channel_tiles, span_tiles, chunks, ranks;
  FastDivide by_row, by_image;             // spans of a row of x, rows of an image
  int32_t rows, x_w;                       // rows of all images, pixels
  int32_t together;                        // spans that one box brings: of a row, or of images
  int32_t whole;                           // four numbers of dX are stored at once
  FastDivide by_parts, by_kernel;          // channels last: chunks of a tap, taps of a kernel row
  int32_t dilation_h, dilation_w, of_tap;  // and numbers of one
  int32_t planes, row_bits;  // NCHW: output channels of a chunk; log2 of bytes of a kernel row
  int32_t before, early;  // numbers that a box starts before its first pixel, and of them too early
  int32_t row_pitch, span_pitch, half_pitch;  // bytes
  int32_t source_at, asked_bytes, stages, stage_bytes, shared_bytes;
  // Sums: lines of neighbours in dX, positions in NCHW and channels of channels last; bytes from one to the next, and fours
  // of one.
  int32_t lines, sum_pitch;
  int32_t received_at;  // behind them, what ranks send each other: fours of a rank's share
  FastDivide by_fours, by_share;
};

}  // namespace convt2d::cuda::strand
