// rows: what one block computes.
//
// A block has `tile_rows` x `tile_width` positions q (core/phases.h) of one image and up to 16 output channels of a group,
// and computes all phases of them: whole stretches of rows of y, whichever taps a phase has, also none. All pixels that it
// reads and all weights lie in its shared memory, in units of 16 bytes: neighbouring input channels of one pixel, or of
// one tap and output channel. Weights stay: blocks walk tiles. A step is the product of such units. The steps of a pair of
// phases (h, w) follow each other, and weights lie in the order of steps. Strict fp32 has readings and blocks instead
// (`Reading`).
//
// Of channels-last tensors a block takes all groups and channels, so that what it writes of a row of y is one run of memory,
// and every warp works on its own: an item is 16 to 64 positions of a row, all phases of w or, where pixels of y are whole
// sectors, one of them. Where weights are many, since phases are, a block has a part of these.
#pragma once

#include <cstdint>

#include "cuda/device/index.cuh"

namespace convt2d::cuda::rows {

constexpr int kThreads = 256;
constexpr int kChannels = 16;  // of y, of a block
constexpr int kUnit = 16;      // bytes
// Of memory, that are written at once where rows are joined: words, since 16 bits gain nothing.
constexpr int kLineBytes = 128;
CONVT2D_HOST_DEVICE constexpr int line_bytes(int size) { return size == 4 ? kLineBytes : kUnit; }

constexpr int kChunk = 32;  // positions of a warp
constexpr int kBlocks = 2;  // for which an SM must have registers

constexpr int kPanel = 8;  // channels of y that an instruction takes where positions are its rows,
constexpr int kPositions = 16;  // and these
// Of a warp at once: panels, and times the positions of an instruction, for as many sums as there are registers.
constexpr int kMostPanels = 4, kMostRowTiles = 4;
constexpr int kMostTogether = 12;
constexpr int kWarps = kThreads / 32;
constexpr int kPixelBlocks = 2;  // for which an SM must have registers

constexpr int kMostTaps = 64, kMostPhases = 32;            // of an axis
constexpr int kMostPlaneTaps = 16, kMostPlanePhases = 16;  // the same in NCHW
constexpr int kMostPairs = 64;                             // of phases of both axes, of a block

// Of NCHW, neighbouring phases of w that a warp has sums for, as registers allow; strict fp32 splits a pixel's units once for
// them.
CONVT2D_HOST_DEVICE constexpr int most_phases(int size) { return size == 4 ? 4 : 5; }
constexpr int kMostStrictPhases = 3;
constexpr int kMostReadings = 64;

struct AxisTaps {
  int32_t in, out, kernel, stride, near_pad, dilation;  // see Axis
  int32_t phases;
  int32_t first_offset;           // of the source: what the first pixel of a tile is for
  int32_t reach;                  // from there to the last offset
  int16_t offset[kMostTaps];      // less the first
  int8_t phase[kMostTaps];        // that has this tap; -1: none
  int8_t rank[kMostTaps];         // among the taps of that phase
  int8_t taps[kMostPhases];       // of a phase
  int8_t order[kMostTaps];        // taps by their phases
  int8_t begin[kMostPhases + 1];  // of a phase's taps there
};

// Where two units of pixels are read for all phases of one of h and `phases_at_once` of w, and which of the latter have a tap there,
// as bits. Each of these has a block of weights, one after the other.
struct Reading {
  int16_t row, column;
  int8_t phases, count;
  int16_t first_block;
};
struct Readings {
  Reading reading[kMostReadings];
  int16_t first[kMostPairs + 1];                    // of a phase of h and phases of w
  int16_t of_tap[kMostPlaneTaps * kMostPlaneTaps];  // or -1
  int8_t place[kMostPlaneTaps * kMostPlaneTaps];    // of a tap among a reading's phases
};

// 16 bytes of outputs, of which a warp stores those of a run: so many lie side by side in shared memory. The way from one
// to the 32nd after it, in bytes, and what has to be added where the next ones begin.
struct Pieces {
  FastDivide together;
  int32_t turn;  // 32 modulo `together`
  int32_t shared_way, memory_way;
  int32_t shared_gap, memory_gap;
};

struct Params {
  const void* source;
  const void* weight;
  const void* bias;  // or null
  void* destination;
  int64_t weight_stride[4];
  AxisTaps h, w;
  int32_t part_h, part_w;              // phases of a block
  int16_t first_step[kMostPairs + 1];  // of a pair of them
  int32_t batch, groups, reduce, columns;
  int64_t x_channel, x_pixel;  // strides
  int32_t units;               // of a pixel and group
  int32_t row_units;           // of a pixel in a row of the patch
  int32_t panels;              // of eight channels, of a block; of a group
  int32_t group_panels;
  FastDivide divide_panels, divide_group_panels;
  int32_t column_tiles, tiles_h, tiles_w;
  int32_t tile_rows, tile_width;    // positions
  int32_t patch_rows, patch_width;  // pixels
  FastDivide divide_units, divide_patch_width;
  int32_t phases_at_once, row_parts;  // of the phases of w, an item's; so many items has a row
  int32_t staging_pitch;              // bytes of a channel
  int32_t joined;  // 1: a block has whole rows of y, which follow each other in memory
  int32_t buffers;
  // Places in shared memory: weights; pixels; outputs of a row, once or twice; where a step's pixels are, less the
  // position's place; bias.
  int32_t weights_at, patch_at, staging_at, steps_at, bias_at, shared_bytes;

  Readings readings;  // of strict fp32

  // Tiles of positions, and the blocks that walk them: for each tile as many as there are groups and their channels, or, of
  // channels-last tensors, parts of the phases.
  int32_t tiles, walkers, parts;

  // Of channels-last tensors.
  int32_t parts_w;
  int32_t row_tiles;   // of an item: 16 positions each
  int32_t run_phases;  // of w, of what is stored at once
  int32_t panels_at_once;
  int32_t whole_units;     // 1: a group's channels are whole units
  int32_t patch_pixels;    // of a row, of which a buffer has patch_width
  int32_t position_pitch;  // of a position's outputs in a warp's buffer
  int32_t warp_bytes;      // of that buffer
  Pieces outputs, same;    // in such a buffer, and the bias as it repeats in memory
  int32_t same_at;
  FastDivide divide_row_units, divide_row_pieces, divide_chunks;
};

}  // namespace convt2d::cuda::rows
