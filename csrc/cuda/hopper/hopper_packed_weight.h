// hopper, grad_weight of 16-bit channels-last tensors whose output channels are few and no whole 16 bytes: what one block
// computes, and the numbers it is told.
//
//   dW[ci, co, tap] = sum over pixels of x[ci, pixel] * dY[co, pixel * stride - near_pad + tap * d]
//
// As a GEMM: rows M = input channels, columns N = (tap, output channel) packed without gaps, reduction K = the pixels of
// x, 64 of them a K tile. x is brought and turned as in hopper_weight_config.h. Of dY, what the taps of a kernel row read for a
// pixel is one `segment` of memory, kernel_w x channels numbers (dilated: a segment for each tap), which may start at any
// number. So the copy engine brings runs of bytes, from the last multiple of 16 on: of each image of a tile the lines that
// its pixels meet, once. Two teams of warps take tiles in turn and write them out, pixel by pixel, as the second operand: groups
// of eight columns
//
//   dY   [group of columns][pixel][16 B]
//
// which the tensor core turns. Columns start where words of memory do, if segments of all pixels start alike; else (`two_words`)
// a word is put together from two.
//
// Lines have a ring of their own, so that they come while those before are written out. In it, images and lines lie as far apart as
// in memory but for multiples of 16 bytes, so that what is 16 bytes there is that here.
//
// Blocks that share dW but not the pixels write partial sums; a second pass adds them in a fixed order (weight_sum.h).
#pragma once

#include <cuda.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/args.h"
#include "core/plan.h"
#include "core/problem.h"
#include "cuda/hopper/hopper_fetched_weight.h"
#include "cuda/hopper/hopper_weight_config.h"

namespace convt2d::cuda::hopper {

// Each of two warpgroups multiplies 64 input channels by `wide` columns and, if there are any, `narrow` ones.
struct PackedWeightTile {
  int wide, narrow;
};
constexpr PackedWeightTile kPackedWeightTiles[] = {{192, 96}, {192, 0}};
constexpr int kPackedWeightTileCount = sizeof(kPackedWeightTiles) / sizeof(kPackedWeightTiles[0]);
// Plan.row of the first: behind those of fetched grad_weight, which serves some of the same problems.
constexpr int kFirstPackedWeight = kFetchedWeightTileCount;

constexpr int kPackedGroups = 2, kPackedConsumers = 128 * kPackedGroups;
// Beside them a warp that asks for x, one that asks for lines, and teams that write these out.
constexpr int kPackedTeams = 2, kPackedTeam = 3, kPackedBuilders = kPackedTeams * kPackedTeam;
constexpr int kPackedThreads = kPackedConsumers + (2 + kPackedBuilders) * 32;
// Of a thread; together what the block starts with.
constexpr int kPackedConsumerRegisters = 192, kPackedProducerRegisters = 64;
static_assert(kPackedConsumers * kPackedConsumerRegisters +
                  (kPackedThreads - kPackedConsumers) * kPackedProducerRegisters <=
              65536);

CONVT2D_HOST_DEVICE constexpr int packed_columns(PackedWeightTile tile) {
  return tile.wide + tile.narrow;
}
// Of eight columns; 16 bytes more than they need, so that lanes that write neighbouring words meet every bank once.
constexpr int kColumnsBytes = kTilePixels * 16 + 16;
constexpr int kPackedRowsBytes = kPackedGroups * kTilePixels * kRowBytes;  // x of a stage
CONVT2D_HOST_DEVICE constexpr int packed_stage_bytes(PackedWeightTile tile) {
  return (kPackedRowsBytes + packed_columns(tile) / 8 * kColumnsBytes + 1023) / 1024 * 1024;
}
// Cells of 32 words of a pixel that a warp writes at once.
CONVT2D_HOST_DEVICE constexpr int packed_passes(PackedWeightTile tile) {
  return (packed_columns(tile) + 63) / 64;
}
// A thread's sums on their way out.
CONVT2D_HOST_DEVICE constexpr int packed_sum_pitch(PackedWeightTile tile) {
  return packed_columns(tile) * 4 + 32;
}

constexpr int kMostLineStages = 4;

// Everything a block needs, passed by value. 32-bit element offsets: larger tensors are declined.
struct PackedWeightParams {
  void* weight;     // written when there is one piece
  float* partials;  // else [pieces][kh][kw][ci][co]
  const void* y;
  int32_t piece_floats;
  int32_t weight_stride[4];
  int32_t batch, rows, columns;  // input and output channels
  int32_t x_h, x_w, y_h, y_w;    // extents
  int32_t stride_h, stride_w, pad_h, pad_w, dilation_h;
  int32_t kernel_h, kernel_w;
  int32_t unit_rows, units, row_blocks;  // kernel rows of a block; blocks side by side
  int32_t tile_n, tile_h, tile_w;        // pixels of a K tile that are used
  int32_t tiles_n, tiles_h, tiles_w;
  int32_t reach_w;  // pixels of dY from a row's first tap to its last one
  // Segments of a kernel row, numbers of one and to the next one; its columns, which start with `ahead` numbers that are not of
  // it.
  int32_t segments, segment_numbers, segment_step, segment_columns, ahead, two_words;
  // Lines of an image: rows of dY from one to the next, lines from one row of x, and of the kernel, to the next; numbers
  // of one; bytes to the next line and image, and of a stage's.
  // Lines that are whole rows, one behind the other, are one that is long; what it has beside the image is cleared as it is
  // beside a row.
  int32_t lines, line_step, row_lines, tap_lines, line_numbers, one_run;
  int32_t line_bytes, image_bytes, lines_bytes;
  int32_t y_bytes;  // of all of dY
  int32_t stages, line_stages, split;
};

CONVT2D_HOST_DEVICE int used_columns(const PackedWeightParams& p) {
  return p.unit_rows * p.segments * p.segment_columns;
}

// Shared memory: barriers of stages and of lines, where a tile's pixels are, what columns are, the stages, the lines; or, in
// their place, the sums.
constexpr int kLineBarriersAt = 16 * kMostTileStages,
              kPackedPixelsAt = kLineBarriersAt + 16 * kMostLineStages,
              kPackedColumnsAt = kPackedPixelsAt + 8 * kTilePixels, kMostPackedColumns = 288,
              kPackedStagesAt = 2048;
static_assert(kPackedColumnsAt + 4 * kMostPackedColumns <= kPackedStagesAt);
CONVT2D_HOST_DEVICE int packed_shared_bytes(const PackedWeightParams& p, PackedWeightTile tile) {
  const int stages = p.stages * packed_stage_bytes(tile) + p.line_stages * p.lines_bytes;
  const int sums = kPackedGroups * kCellChannels * packed_sum_pitch(tile);
  return kPackedStagesAt + (stages > sums ? stages : sums);
}

// Every plan there is, in no order. `reason` says why there is none.
std::vector<Plan> packed_weight_plans(const Problem& problem, const Device& device,
                                      std::string& reason);
Decision packed_weight_plan(const Problem& problem, const Device& device);
inline bool is_packed_weight(const Problem& problem, const Plan& plan) {
  return may_be_turned(problem) && plan.row >= kFirstPackedWeight;
}
// What a plan's kernel is told, and how many blocks it has.
PackedWeightParams packed_weight_params(const Problem& problem, const Plan& plan, const Args& args);
CUtensorMap packed_weight_map(const PackedWeightParams& params, const Args& args);
int64_t packed_weight_blocks(const PackedWeightParams& params);

// hopper_packed_weight.cu
void launch_packed_weight(DType dtype, int row, const PackedWeightParams& params,
                          const CUtensorMap& x, int64_t blocks, void* stream);

}  // namespace convt2d::cuda::hopper
