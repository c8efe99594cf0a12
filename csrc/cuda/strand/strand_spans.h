// strand's spans: the same GEMM where the copy engine brings both operands, for rows of many pixels and many channels (hifigan_u0). A
// chunk of K is 128 bytes of a row of weights; columns of a tile are four spans of 32 pixels of a row of x.
//
//   weights   [channel of x][128 bytes of K], swizzled
//   dY        channels last [span][pixel][128 bytes of channels of one tap], swizzled;
//             NCHW [half of a span][span][output channel][what its 16 pixels read of a row], as it lies
//
// In NCHW a position's taps are neighbours, and the next position's begin a stride behind: whoever multiplies fetches them word by
// word. Two warps share a span, of 64 channels each; K is shared out to the blocks of a cluster.
#pragma once

#include "cuda/strand/strand_config.h"

namespace convt2d::cuda::strand {

constexpr int kSpanRows = 128, kSpans = 4, kSpan = 32, kSpanColumns = kSpans * kSpan;
constexpr int kSpanWarps = 8,
              kSpanThreads = kSpanWarps * 32 + 32;  // one more warp asks the copy engine
constexpr int kSpanChunk = 128, kSpanSteps = kSpanChunk / kStep;
constexpr int kSpanWeights = kSpanRows * kSpanChunk;  // bytes of a stage
constexpr int kMostSpanStages = 8;
// From a line of sums to the next, so that neighbours lie in different banks.
constexpr int kSpanSums = (kSpanColumns + 4) * 4;
static_assert(kSpanRows == kSpanColumns);

struct SpanParams {
  Params base;  // of the same problem, for what is summed again
  int32_t row_tiles, column_tiles, chunks, ranks;
  FastDivide by_row, by_image;             // spans of a row of x, rows of an image
  int32_t rows, x_w;                       // rows of all images, pixels
  int32_t together;                        // spans that one box brings: images
  int32_t whole;                           // four numbers of dX are stored at once
  FastDivide by_parts, by_kernel;          // channels last: chunks of a tap, taps of a kernel row
  int32_t dilation_h, dilation_w, of_tap;  // and numbers of one
  int32_t planes, row_bits;  // NCHW: output channels of a chunk; log2 of bytes of a kernel row
  int32_t before, early;  // numbers that a box starts before its first pixel, and of them too early
  int32_t row_pitch, span_pitch, half_pitch;  // bytes
  int32_t source_bytes, stages, stage_bytes, shared_bytes;
};

}  // namespace convt2d::cuda::strand
