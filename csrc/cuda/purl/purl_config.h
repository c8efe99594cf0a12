// purl: grad_input, NCHW, of kernels of 2, 4 or 8 columns with an even stride in 16 bits, of 1, 2 or 4 columns with any in TF32.
//
//   dX[n][c][r][i] = sum over (o, kh, kw) of w[c][o][kh][kw] * dY[n][o][S r - P + kh][S i - P + kw]
//
// A GEMM of operands as they lie: rows are pixels of x, columns its channels, K is (o, kh, kw) in the order of w.
//
//   w    [channel][128 B]   a channel's numbers follow each other, so K does: swizzled boxes of the copy engine, of a chunk of K, or
//        of all of K, which then stay
//   dY   whole channels, as many as a chunk of K has, in one of the forms below, not swizzled. A word is two neighbouring taps of
//        some pixel (TF32: one), or, under an odd padding, of two words half each. Lanes fetch them as the tensor core wants rows in
//        registers: where a pixel is, and where a word of K is from there, are found once
//   out  of a warpgroup, 64 channels at a time, and from there to runs of rows of x
//          [channel][pixel]                  threads store them
//          [span of pixels][channel][pixel]  swizzled: boxes that the copy engine stores while the next ones are laid out, or multiplied
//
// A tile is up to 128 pixels: whole images, whole rows of one, or parts of rows. A warpgroup has 64 of them, of up to 256 channels.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "core/types.h"
#include "cuda/device/index.cuh"

namespace convt2d::cuda::purl {

constexpr int kTeams = 2, kTeamPixels = 64, kMostPixels = kTeams * kTeamPixels;
constexpr int kConsumers = 128 * kTeams, kThreads = kConsumers + 128;
// Sums are up to 128.
constexpr int kConsumerRegisters = 240, kProducerRegisters = 24;

// By a Plan's row; `odd`: a word's numbers are in two, of 16 bits.
struct Tile {
  int width;  // channels
  bool odd;
};
constexpr Tile kTiles[] = {{64, false}, {128, false}, {256, false},
                           {64, true},  {128, true},  {256, true}};
constexpr int kTileCount = sizeof(kTiles) / sizeof(kTiles[0]),
              kWordTiles = 3;  // the latter of TF32
CONVT2D_HOST_DEVICE constexpr int tiles_of(int size) { return size == 4 ? kWordTiles : kTileCount; }

constexpr int kLine = 128, kChunkWords = kLine / 4;  // of K
constexpr int kStepWords = 8, kSteps = kChunkWords / kStepWords;
// Steps whose words are fetched while as many others are multiplied; bytes of K.
constexpr int kBatch = 2, kBatchBytes = kBatch * kStepWords * 4;
constexpr int kMostRowWords = 4;  // of a kernel row: a lane's is the same in all of K
constexpr int kMostStages = 8;

// How dY comes. Rows that are no whole 16 bytes follow each other in a plane: what is beside them is then masked, and a tile has
// whole rows of x.
enum Form : int32_t {
  kRows,  // a box is rows of dY, which are whole 16 bytes
  kRuns,  // a box is a run of a plane: all that some rows of x read
  kTaps,  // kernels that are their stride: a box is a kernel row of all rows of x
};

// Outputs on their way, of so many channels at a time, in up to two places by turns if the copy engine takes them. For threads, 16
// bytes more for each channel: no bank twice.
constexpr int kPassChannels = 64, kMostPlaces = 2;
CONVT2D_HOST_DEVICE constexpr int pass_pitch(int size) { return kTeamPixels * size + 16; }
CONVT2D_HOST_DEVICE constexpr int pass_bytes(int size) { return kPassChannels * pass_pitch(size); }

// Everything a block needs, passed by value. 32-bit element offsets: larger tensors are declined.
struct Params {
  void* x;
  const void *y, *w;                       // for repairs
  int32_t batch, groups, reduce, columns;  // the latter two: channels of a group
  int32_t x_h, x_w, y_h, y_w, kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;
  int32_t outside;                      // whether some pixel's tap is beside dY
  int32_t images, rows, own, pixels;    // of a tile; `own`: columns
  int32_t items, walkers;               // the latter: blocks
  int32_t chunks, stages, stage_bytes;  // of K; of the ring
  int32_t short_end;                    // 1: the last chunk has no more than a batch of steps
  int32_t resident;                     // weights stay
  int32_t stages_at, pixels_at;  // the latter in a stage: behind the weights, if these come along
  int32_t staging_at, shared_bytes;
  // Boxes of dY: how many for an image, rows of x of one, how far apart in shared memory and along axis 0, and all their bytes. Where the first
  // one is wanted on axis 0 and on that of rows: at a number, and so much further for a row or a column of x; and of what it
  // starts at a multiple, since the copy engine starts at whole 16 bytes.
  int32_t boxes, box_rows, box_pitch, box_step, copied_bytes, aligned;
  int32_t first_column, columns_of_row, first_row, rows_of_row;
  int32_t together, depth;  // channels that are neighbours in a box, channels of a chunk
  // Bytes in shared memory, between images, pixels' rows, kernel rows, channels, and those that are not together.
  int32_t image_pitch, row_pitch, tap_pitch, channel_pitch, apart_pitch;
  int32_t masked;      // columns beside dY
  int32_t unit;        // bytes of a thread's store
  int32_t team_bytes;  // of a warpgroup's outputs on their way
  // Places of those that leave in boxes, 0 if threads store them; whether boxes are of planes or of rows, and how many of these, or a
  // span of one. In shared memory, bytes of a pass, between its spans and channels; what swizzles 16 of them.
  int32_t places, of_planes, box_lines;
  int32_t out_bytes, out_span, out_pitch, out_swizzle;
  FastDivide by_blocks, by_groups, by_strips, by_bands;  // of items
  FastDivide by_own, by_rows;                            // of a tile's pixels
  FastDivide by_span, by_line;  // of these, as they leave: the latter is what boxes are of
};

// A tile's pixel, from the tile's first.
struct Pixel {
  int image, row, column;
};
// Where in a stage what a pixel reads is, and where a word of K is from there. `size`: of a number.
CONVT2D_HOST_DEVICE int pixel_place(const Params& p, const Pixel& at, int size) {
  return p.pixels_at + at.image * p.image_pitch + at.row / p.box_rows * p.box_pitch +
         at.row % p.box_rows * p.row_pitch + at.column * p.stride_w * size;
}
CONVT2D_HOST_DEVICE int word_place(const Params& p, int word, int size) {
  const int of_row = p.kernel_w * size / 4, of_channel = p.kernel_h * of_row,
            channel = word / of_channel, tap = word % of_channel / of_row,
            skipped = (p.first_column + tap * p.box_step) & (p.aligned - 1);
  return channel % p.together * p.channel_pitch + channel / p.together * p.apart_pitch +
         tap * p.tap_pitch + skipped * size + word % of_row * 4;
}

struct Maps {
  CUtensorMap y, w, x;  // the latter if there are `places`
};

// Shared memory: the stages' barriers and that of the weights that stay, these, stages, outputs.
constexpr int kResidentBarrier = kMostStages * 16, kResidentAt = 1024;
static_assert(kResidentBarrier + 8 <= kResidentAt);

}  // namespace convt2d::cuda::purl
