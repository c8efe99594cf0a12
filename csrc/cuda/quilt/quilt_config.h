// quilt: grad_weight of NCHW tensors whose kernel is its stride, two or four taps in a row of it, without padding.
//
//   dW[ci, (co, kh, kw)] = sum over pixels of x[ci, pixel] * dY[co, row of pixel * KH + kh, column of pixel * KW + kw]
//
// As a GEMM: rows M = (co, kh, kw), columns N = input channels, reduction K = pixels. wgmma wants its second operand as
// rows along K: so x is. The first one comes from registers. What some rows of pixels meet in a plane of dY is one run of
// memory, long, and a multiple of 16 bytes whatever rows of x are. There, a pixel's taps of a kernel row are neighbours: 4 to 16 bytes that a thread fetches at once, for as many rows of the sum.
//
// A warp has `bands`: a kernel row of eight output channels, one of each lane's g. Rows g and g + 8 of its 16 of an
// instruction are two taps; a warpgroup's two instructions are the four taps of a band, or two bands of two.
//
// x     [32 bytes of pixels][input channel][32 B], pixels of a chunk one behind the other
// dY    [box][output channel][words of the run], rows so long that lanes meet no bank twice
// raw   [input channel][x as it lies, from the multiple of 16 bytes before it]
//
// Planes of x start anywhere, and the copy engine's boxes at whole 16 bytes. Channels that lie `classes` apart do so whatever
// a plane's size is, and start alike: so each of as many maps of x has every eighth channel, or every fourth one of words,
// and columns of the sum are channels in the order 0, 8, 16 .. 1, 9 .. Eight warps, each a class or half of one, move what came to
// where it belongs, 32 bytes a lane, and leave zeros where a chunk ends.
//
// A chunk of K is some rows of pixels of an image. Blocks that share dW but not the pixels write partial sums, in the
// order of dW.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "core/types.h"
#include "cuda/device/index.cuh"

namespace convt2d::cuda::quilt {

// Input channels of a block, and taps of a kernel row. Strict fp32: every number is the sum of two.
struct Tile {
  int width, taps;
  bool strict = false;
};
constexpr Tile kTiles[] = {{128, 4}, {64, 4}, {128, 2}, {64, 2}, {64, 4, true}, {64, 2, true}};
constexpr int kTileCount = 4, kStrictTileCount = 2;  // these come last
static_assert(kTileCount + kStrictTileCount == sizeof(kTiles) / sizeof(kTiles[0]));

constexpr int kGroups = 2, kConsumers = 128 * kGroups, kHelpers = 256;
constexpr int kThreads = kConsumers + kHelpers;
constexpr int kConsumerRegisters = 208, kHelperRegisters = 48;
constexpr int kInstructions = 2;  // of a warpgroup, of 64 rows of the sum
constexpr int kStep = 32;         // bytes of pixels of an instruction
constexpr int kWords = kStep / 4;
constexpr int kMostSteps = 31, kMostStages = 6;  // a box has up to 256 words
constexpr int kRaws = 2;                         // chunks of x under way as they lie
// What is copied of dY starts at multiples of so many bytes, in memory as in shared memory (TensorBox).
constexpr int kSector = 32;
constexpr int kMostClasses = 8;
constexpr int kTableSets = 3;
CONVT2D_HOST_DEVICE constexpr int classes(int size) { return 16 / size; }

// Steps that are fetched and multiplied at once, at most; strict fp32 has always so many.
CONVT2D_HOST_DEVICE constexpr int at_once(Tile tile) { return tile.strict ? 2 : 4; }
// Bands of a block, and of a warp.
CONVT2D_HOST_DEVICE constexpr int bands(Tile tile) { return 32 / tile.taps; }
CONVT2D_HOST_DEVICE constexpr int warp_bands(Tile tile) { return 4 / tile.taps; }
// Output channels lie so far apart, among 128 bytes, that the lanes of half a warp meet no bank twice; of pairs of 16-bit
// pixels of four taps, every second two lanes fetch the second pixel first.
CONVT2D_HOST_DEVICE constexpr int pitch_residue(Tile tile) { return tile.taps == 4 ? 64 : 32; }

struct Params {
  const void *x, *y;
  void* weight;
  float* partials;  // else [pieces][ci][co][kh][kw]
  int32_t piece_floats;
  int32_t batch, groups, rows, columns;  // of a group: input and output channels
  int32_t x_h, x_w;
  int32_t kernel_h, y_row, y_plane;   // numbers of dY
  int32_t channels;                   // output channels of a block
  int32_t row_blocks, column_blocks;  // blocks side by side
  int32_t chunk_rows, last_rows;      // rows of pixels of a chunk, and of an image's last one
  int32_t image_chunks;
  int32_t steps, last_steps;              // of a chunk
  int32_t run_bytes;                      // of dY, of a row of pixels
  int32_t y_boxes, y_pitch, y_box_bytes;  // of a run; from channel to channel
  int32_t y_at, stage_bytes;              // where dY is in a stage
  int32_t table_bytes, stages_at;
  int32_t raw_pitch, raw_bytes;  // of a channel of x as it lies, of a chunk
  int32_t stages, split;
  FastDivide by_width, by_pitch, by_words;  // x_w, y_pitch, a table
  int32_t lead[kMostClasses];               // numbers of a map before its first plane
};

struct Maps {
  CUtensorMap x[kMostClasses], y;
};

// Shared memory: for each stage three barriers, and one each for x as it lies; for each kernel row, where pixels stand in
// dY, of even chunks of an image, of odd ones, and of the last; the stages; x as it lies.
constexpr int kRawAt = 16 * kMostStages, kShiftedAt = kRawAt + 8 * kRaws;
constexpr int kTablesAt = 256;
static_assert(kShiftedAt + 8 * kMostStages <= kTablesAt);

CONVT2D_HOST_DEVICE constexpr int step_bytes(Tile tile) { return tile.width * kStep; }
// Of x as it is multiplied; strict fp32 has there, behind it, what the tensor core cuts off.
CONVT2D_HOST_DEVICE constexpr int x_bytes(Tile tile, int steps) {
  return steps * step_bytes(tile) * (tile.strict ? 2 : 1);
}
// In the end the sums, in the place of the stages: a column of them, of all rows.
constexpr int kSums = 256, kSumPitch = (kSums + 4) * 4;
CONVT2D_HOST_DEVICE int shared_bytes(const Params& p, Tile tile) {
  const int stages = p.stages * p.stage_bytes + kRaws * p.raw_bytes;
  const int sums = tile.width * kSumPitch;
  return p.stages_at + (stages > sums ? stages : sums);
}

}  // namespace convt2d::cuda::quilt
