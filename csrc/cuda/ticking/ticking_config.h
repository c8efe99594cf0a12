// ticking: grad_input of NCHW tensors of few channels of a group, bound by reading dY.
//
//   dX[ci, pixel] = sum over taps and co of dY[co, pixel * stride - near_pad + tap * d] * w[ci, co, tap]
//
// As a GEMM on mma.sync: rows M = (row of x, input channel), columns N = pixels, reduction K = (output channel, tap of a kernel
// row). A block goes down a strip of x, row by row. One warp asks for lines of dY (cp.async.bulk), as they lie from the 16 bytes on
// in which they begin, into a ring of stages; a stage is a line of up to 32 output channels. Lines that no tap reads do not come.
//
// A warp has 32 pixels and four `halves` of M, of eight input channels each: of one live row of x (`LiveRows`) several eights, or
// of several rows one. The first halves are the eldest row, which a step completes, and the others then move up.
//
// K goes by eight output channels, a `unit`: a lane of a column's four has two of them, and a step of K is one word of each: a
// number, or two of 16 bits, of taps that follow each other. So nothing that a lane fetches depends on how many taps there are. An odd last
// tap of 16 bits stands twice in its word, once times zero.
//
//   weights  [8 x `eights` input channels][line of a step][unit][step of K][pair of halves][lane]
//   dY       [stage][output channel][16 bytes of memory]
#pragma once

#include <cstdint>

#include "cuda/device/index.cuh"

namespace convt2d::cuda::ticking {

constexpr int kLiveRows = 4;   // of x, that share a line of dY, at most
constexpr int kStepLines = 8;  // of dY, at most

// Of a step, which is a row of x: its lines, the row of dY of each from the first one's on, and the kernel row by which each
// live row of x, the eldest first, reads it; -1: not at all.
struct LiveRows {
  int32_t lines, live;
  int16_t line_row[kStepLines];
  int8_t kernel_row[kStepLines][kLiveRows];
};

// Taps of a kernel row that are neighbours in memory, 16 bits: they come as words, each of them once. 0: any, which come number by
// number.
constexpr int kTiles[] = {0, 3, 4, 5};
constexpr int tiles_of(int size) { return size == 4 ? 1 : 4; }

constexpr int kMostWarps = 4;                        // that multiply
constexpr int kMostThreads = (kMostWarps + 1) * 32;  // and one that brings
constexpr int kBlocks = 3;                        // for which a multiprocessor must have registers
constexpr int kHalves = 4, kPairs = kHalves / 2;  // of M
constexpr int kOctets = 4, kWarpPixels = kOctets * 8;  // of N
constexpr int kUnit = 8;                               // output channels
constexpr int kMostPartUnits = 4, kMostStages = 8;
constexpr int kMostKernelColumns = 32;  // since bits of a word tell which of them a pixel has
constexpr int kStrictSteps = 4;         // of K, that are summed apart
constexpr int kOperandBytes = 512;      // of weights, of all lanes

struct Params {
  const void *y, *weight;
  void* x;
  int32_t weight_stride[4];
  int32_t batch, groups, rows, columns;  // of a group: input, output channels
  int32_t x_h, x_w, y_h, y_w, y_plane, y_numbers;
  int32_t stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, kernel_h, kernel_w;
  LiveRows step;
  int8_t first_live[kStepLines], last_live[kStepLines];  // that read a line
  int8_t pairs[kStepLines];                              // of halves that do, as bits
  int32_t eights;                                        // of input channels, of a warp
  int32_t steps;                                         // of K, of a unit
  int32_t units, part_units;
  int32_t pixel_warps, input_warps;
  int32_t width, reach;   // of a strip: pixels, and the numbers of a row of dY that they read
  uint32_t way[kOctets];  // in a row of dY, from a lane's first pixel to those of other octets
  int32_t pitch, stage_bytes, stages;
  int32_t whole;  // 1: rows of x are whole 16 bytes
  // Rows of all strips, which blocks share out: each has a piece, and the first ones a row more.
  int32_t in_blocks, strip_rows, pieces, piece_rows, longer_pieces;
  int32_t barriers_at, stages_at, shared_bytes;  // behind the weights
  FastDivide by_rows, by_tiles, by_dilation;     // of x; its strips in a row; of a kernel row
};

CONVT2D_HOST_DEVICE int consumers(const Params& p) { return p.pixel_warps * p.input_warps; }

// Columns of instructions are dealt to pixels such that a lane's sums, of columns 2 t and 2 t + 1 of all octets, are neighbours: 16
// bytes, and of words another 16. Of a number's bytes: the pixel of column g of octet 0, and how far that of another octet is.
CONVT2D_HOST_DEVICE int pixel_of(int size, int g) {
  return size == 4 ? g / 2 * 4 + g % 2 : g / 2 * 8 + g % 2;
}
CONVT2D_HOST_DEVICE int octet_pixel(int size, int octet) {
  return size == 4 ? octet % 2 * 2 + octet / 2 * 16 : octet * 2;
}

}  // namespace convt2d::cuda::ticking
