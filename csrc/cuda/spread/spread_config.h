// spread: what one block computes, and the numbers it is told.
//
// Forward as a GEMM whose rows are pixels and whose columns are what becomes of a pixel,
//
//   products[pixel][(phase, kw, co)] = sum over shift, ci of x[row - shift][pixel][ci] * w[ci][shift * stride + phase][kw][co]
//
// so that columns are full whatever the number of output channels is. As in narrow, rows of the destination are counted from
// before its padding: `row` stands for the outputs row * stride to row * stride + stride - 1, its phases. Kernel rows add up
// where they are multiplied: a shift is an address. Kernel columns are added up by way of shared memory
// (spread_collect.cuh), and outputs go to memory in its order. Columns lie as weights do: where these are [co][kh][kw], they
// are (co, phase, kw).
//
//   x          of a chunk of channels: channels last, [row][pixel][128 B], swizzled; NCHW ("planes"), [channel][row][pixel]
//              with zeros beside, as it lies: those who multiply fetch pixels (spread_fetched.cuh). Where a pixel's channels
//              are no whole 16 bytes but those of 2 or 4 neighbours are, a set: [place in a set][row][set][144 B], from the 16
//              bytes on in which a chunk of a place starts
//   weights    of the same: 16 bits [eight columns][channel][16 B], turned by the tensor core; words [four channels][column][16 B]
//   products   of a warpgroup: [pixel, with zeros between rows][column]
//
// A mesh (spread_mesh.cuh; planes under kernels of two taps a phase on both axes, two phases of rows) has no products: where
// pixels are fetched, steps to the side are addresses too. Its columns are whole outputs, (co, phase, phase of rows), and
// weights come in parts, one for each pair of shifts. Where planes are small, they come whole (spread_whole.cuh), by half
// chunks: [image that a tile touches][channel][plane as it lies].
//
// Rows of all images are one sequence, with rows of zeros between images, so that a tile of small images is as full as any.
// A block of columns has some of the output channels.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "core/types.h"
#include "cuda/device/index.cuh"

namespace convt2d::cuda::spread {

// Columns, a quarter of a multiple of 32 banks more than that: neighbours of a warp's store lie in different ones.
// How x comes and is read: by the tensor core; fetched by those who multiply, as planes (NCHW), by sets of pixels, or as a mesh
// of planes, which come row by row or whole.
enum Source : int32_t { kAsOperand, kPlanes, kSets, kMesh, kWholeMesh };
struct Tile {
  int width;
  Source source = kAsOperand;
};
constexpr Tile kTiles[] = {{72},         {136},       {136, kPlanes},
                           {128, kSets}, {72, kMesh}, {72, kWholeMesh}};
constexpr int kTileCount = sizeof(kTiles) / sizeof(kTiles[0]);
// Floats of a pixel's products. Of planes, neighbours are pixels when outputs are collected: 16 of them and two columns meet
// no bank twice. Of sets a warp stores every second or fourth pixel's.
CONVT2D_HOST_DEVICE constexpr int pitch(Tile tile) {
  return tile.width + (tile.source == kAsOperand ? 0 : 2);
}
CONVT2D_HOST_DEVICE constexpr bool fetched(Tile tile) { return tile.source != kAsOperand; }
CONVT2D_HOST_DEVICE constexpr bool meshes(Source source) {
  return source == kMesh || source == kWholeMesh;
}
// Rows of planes come apart, by copies that threads ask for.
CONVT2D_HOST_DEVICE constexpr bool by_pieces(Source source) {
  return source == kPlanes || source == kMesh;
}

// Two warpgroups multiply, each blocks(tile) x 64 pixels; eight warps bring, of which one thread asks the copy engine.
constexpr int kGroups = 2, kBlocks = 2, kConsumers = 128 * kGroups;
constexpr int kBringers = 8, kThreads = kConsumers + 32 * kBringers;
constexpr int kConsumerRegisters = 176, kProducerRegisters = 80;
constexpr int kMeshed = 2;  // blocks of a mesh on each axis, and shifts
CONVT2D_HOST_DEVICE constexpr int blocks(Tile tile) {
  return meshes(tile.source) ? kMeshed * kMeshed : kBlocks;
}
// Those who fetch pixels need more.
CONVT2D_HOST_DEVICE constexpr int more_for_consumers(Tile tile) {
  return meshes(tile.source) ? 32 : fetched(tile) ? 16 : 0;
}
CONVT2D_HOST_DEVICE constexpr int consumer_registers(Tile tile) {
  return kConsumerRegisters + more_for_consumers(tile);
}
CONVT2D_HOST_DEVICE constexpr int producer_registers(Tile tile) {
  return kProducerRegisters - more_for_consumers(tile);
}

constexpr int kRows = 64;             // pixels of an instruction
constexpr int kLine = 128;            // bytes of a chunk's channels; of whole planes half of them
constexpr int kSetLine = kLine + 16;  // with those before and behind, between 16 bytes
constexpr int kSlices = 4;            // instructions of a line
constexpr int kMostStages = 4, kMostShifts = 4, kMostTaps = 16, kMostPhases = 8, kMostMargin = 16;
// Times 16 bytes of weights that a thread has under way.
CONVT2D_HOST_DEVICE constexpr int batch(Tile tile) {
  return tile.source == kMesh ? 3 : fetched(tile) ? 5 : 9;
}
// The same, number by number.
CONVT2D_HOST_DEVICE constexpr int number_batch(Tile tile) {
  return tile.source == kWholeMesh ? 1 : tile.source == kMesh ? 2 : 3;
}
constexpr int kPixelBatch = 3;     // times eight pixels that it has
constexpr int kOffsetBits = 24;    // of a weight, in the table of columns; its channel is above
constexpr int kMostChannels = 64;  // of a block of columns

CONVT2D_HOST_DEVICE constexpr int line_numbers(int bytes) { return kLine / bytes; }
// Instructions of a chunk, its channels, and the warps that share its weights' columns out among them.
CONVT2D_HOST_DEVICE constexpr int slices_of(Tile tile) {
  return tile.source == kWholeMesh ? kSlices / 2 : kSlices;
}
CONVT2D_HOST_DEVICE constexpr int chunk_numbers(Tile tile, int bytes) {
  return line_numbers(bytes) / kSlices * slices_of(tile);
}
CONVT2D_HOST_DEVICE constexpr int sharers(Tile tile) { return kSlices / slices_of(tile); }

// Everything a block needs, passed by value. 32-bit element offsets: larger tensors are declined.
struct Params {
  void* destination;
  const void* bias;
  const void* weight;
  const void* source;
  int32_t weight_group, weight_reduce, weight_column, weight_h, weight_w;  // strides
  int32_t batch, groups, reduce, columns;
  int32_t x_h, x_w, y_h, y_w;
  int32_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h;
  int32_t number_bytes;
  int32_t x_image, x_channel, x_pixel;               // strides of x
  int32_t y_image, y_channel, y_line, y_pixel;       // and of y
  int32_t column_channel, column_tap, column_phase;  // columns from one of a pixel's to the next
  int32_t by_channel;  // columns are (co, phase, kw), else (phase, kw, co)
  int32_t copied;      // x, by the copy engine
  int32_t piece, units,
      row_shift;           // planes: bytes at once; of a channel, 32 times; 2^row_shift in a row
  int32_t plane_bytes;     // of a channel, in a stage
  int32_t plane_lead;      // of zeros before it, bytes
  int32_t image_bytes;     // whole planes: of an image's channels of a chunk
  int32_t place_shift;     // sets: of 2^place_shift pixels
  int32_t place_bytes;     // of a place, in a stage
  int32_t announced;       // planes: L2 is told of the next chunk's
  int32_t task_channels;   // channels of a thread's task
  int32_t fast;            // tasks side by side; of planes, most pairs of columns of an item
  int32_t paired;          // such a pair lies at a multiple of its size
  int32_t lines;           // rows of the destination of an instruction's rows, an even number
  int32_t weight_vectors;  // eight columns of 16 bits are 16 bytes, or none
  int32_t block_channels, column_blocks;  // output channels of a block of columns
  int32_t shifts;                         // kernel rows of a phase
  int32_t parts;                          // of a chunk's weights, each of all columns
  int32_t run, run_shift;                 // pixels of a row, 2^run_shift
  int32_t block_rows, tile_rows;          // rows of an instruction, and of a tile
  int32_t image_rows, rows;               // from an image to the next; of all
  int32_t margin;                         // zeros before, between and behind rows
  int32_t step, sweeps;                   // pixels from a stretch of a row to the next; stretches
  int32_t lead;  // of a mesh: pixels before the first one that a stretch has
  int32_t end_position;
  FastDivide by_image_rows, by_fast, by_stride_w, by_shifts, by_stride_h;
  int32_t chunks, last_slices;  // of channels; instructions of the last one
  int32_t items, walkers;
  int32_t stages, stage_bytes, x_bytes, products_bytes;  // products: of a warpgroup
  int32_t cleared_bytes;                                 // from there on, before all else
  int32_t table_at, pieces_at, lines_at, stages_at, products_at, shared_bytes;
};

constexpr int kHeader = kMostStages * 16;

}  // namespace convt2d::cuda::spread
