// hopper, forward and grad_input: what one block computes, and the numbers it is told.
//
// Both directions gather (core/phases.h): a destination position of one phase sums source pixels times
// weights over its taps. As a GEMM:  positions x columns (Cout forward, Cin in grad_input), reduction
// K = taps x the other channel count. The warpgroups of a block have two roles:
//
//   producers  bring K in chunks to shared memory: the source patch, halo included, so all taps share
//              it; and the weights, unless all of them fit and stay. A thread each, where the copy engine does it
//   consumers  multiply (wgmma, both operands from shared memory, or pixels that they fetch) and store
//
// Where the copy engine can bring an operand along K (NHWC), a chunk of K is one row of a pixel or of a column of
// the weights, swizzled. Otherwise what is multiplied from shared memory is rows of 16 bytes along K. Two times 16
// bytes are a slice, what one wgmma eats. By TileRow:
//
//   source    threads, turned    [slice][half][plane][pixel of the plane][16 B]
//             copied             [pixel of a plane][slice][32 B]
//             fetched            [image][row][channel that the chunk touches][pixel], or [image][channel][row][pixel],
//                                where lanes meet in fewer banks: K is channels x taps, in the order of the weights, found
//                                by a table. Few channels (one_chunk) are one patch, and all taps of them one chunk
//   weights   by threads         [slice][product][half][row][16 B]
//             copied             [product][row][slice][32 B], or [product][block of columns][K][32 to 128 B]
//
// Strict fp32 (`strict`): a slice by threads is two, first the high parts of its numbers, then the low ones. Of copied
// weights the tensor core itself takes the high parts; two warps write what it cuts off behind a stage of them.
//
// A plane holds the pixels of one residue modulo the source step (grad_input; forward has one plane), so
// that neighbouring positions are neighbouring pixels. A product is one source offset: the patch, shifted
// by adding to its address, times one matrix of weights. An operand takes its 64 to 128 positions as
// groups of eight pixels, `group_pixels` apart: 8 (a run) or a row of the plane (a column, 8 wide).
//
// Two forms of the sum, by what its rows are:
//   pixel rows    64 positions x `width` columns; for NHWC, where a thread then holds neighbouring
//                 channels, and for few channels. Several phases lie side by side in the columns; a
//                 phase without a tap at an offset meets zeros there.
//   channel rows  64 channels x `width` positions x `slots` phases; for NCHW, where a thread then holds
//                 neighbouring outputs of a row, all column phases of it interleaved.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "core/types.h"
#include "cuda/gather_axes.h"

namespace convt2d::cuda::hopper {

constexpr int kGroup = 8;         // pixels of a core matrix
constexpr int kHalfBytes = 16;    // of a row
constexpr int kSliceBytes = 32;   // of a row
constexpr int kSwizzleRows = 8;   // after which the pattern of a swizzled row comes again
constexpr int kChannelRows = 64;  // channels a tile of channel rows has
constexpr int kMaxStages = 8, kTeamStages = 4;  // of the source; of each of two teams
constexpr int kMaxShares = 4;
constexpr int kMaxKernelTaps = 64;  // of turned kernels and runs
constexpr int kMaxMasked = 32;      // rows and columns of a kernel, a bit each
constexpr int kFewChannels = 4;     // which are one chunk of K, of so many slices at most
constexpr int kMostSlices = 32;

// How a block is divided. Sums of a consumer thread: width / 2 x operands x slots.
struct TileRow {
  bool channel_rows;
  bool copied;                  // the copy engine brings the source
  int width;                    // N of the instruction
  int operands;                 // of positions, for each consumer group
  int slots;                    // phases with sums of their own
  bool columns_copied = false;  // the weights too, their columns contiguous: 16-bit NHWC forward
  bool turned = false;  // 16-bit rows of pixels (NCHW), which the producers turn in shared memory
  // NCHW grad_input as it lies, rows with what is around them: consumers fetch the pixels to registers, tap by tap; of few
  // channels in NHWC too.
  bool fetched = false;
  // TF32 NHWC forward: copied columns, which consumers fetch to registers (hopper_lent.cuh).
  bool weights_fetched = false;
  bool strict = false;  // fp32: every number a sum of two that the tensor core takes
  bool twin = false;  // two blocks a multiprocessor, so that one multiplies while the other stores
};
constexpr TileRow strict_tile(bool channel_rows, int width, int operands, int slots) {
  TileRow tile{channel_rows, false, width, operands, slots};
  tile.strict = true;
  return tile;
}
constexpr TileRow strict_fetched_tile(int width, int operands) {
  TileRow tile = strict_tile(false, width, operands, 1);
  tile.copied = tile.fetched = true;
  return tile;
}
constexpr TileRow twin_tile(int width, int operands) {
  TileRow tile{false, true, width, operands, 1};
  tile.twin = true;
  return tile;
}
// The one table of tiles; hopper_gather_launch.cuh instantiates exactly these, by index.
constexpr TileRow kTiles[] = {
    strict_tile(false, 8, 4, 1),
    strict_tile(false, 16, 4, 1),
    strict_tile(false, 32, 4, 1),
    strict_tile(false, 64, 2, 1),
    strict_tile(false, 128, 1, 1),
    strict_tile(true, 128, 1, 1),
    strict_fetched_tile(32, 4),
    strict_fetched_tile(64, 2),
    strict_fetched_tile(128, 1),
    // One rounding or none, fed by threads.
    {false, false, 8, 4, 1},  // up to 8 columns, phases included
    {false, false, 16, 4, 1},
    {false, false, 32, 4, 1},
    {false, false, 64, 2, 1},
    {false, false, 128, 2, 1},  // many channels
    {true, false, 128, 2, 1},   // many channels, stride 1
    {true, false, 128, 1, 2},   // stride 2 rows
    {true, false, 64, 1, 4},    // stride 3 and 4 rows, or stride 2 x 2
    // What the copy engine serves, compiled apart.
    {false, true, 64, 2, 1, false, true},
    {false, true, 64, 2, 1, false, false, true},
    {false, true, 128, 1, 1, false, false, true},
    {false, true, 256, 1, 1, false, false, true},
    {true, true, 128, 2, 1, true, false, false, true},
    {true, true, 128, 1, 2, true, false, false, true},
    twin_tile(64, 2),
    twin_tile(128, 1),
    {false, true, 8, 2, 1},
    {false, true, 16, 2, 1},
    {false, true, 32, 2, 1},
    {false, true, 64, 2, 1},
    {false, true, 128, 1, 1},
    {false, true, 256, 1, 1},
    {false, true, 32, 2, 1, true},
    {false, true, 64, 2, 1, true},
    {false, true, 128, 1, 1, true},
    {false, true, 256, 1, 1, true},
};
// How many they are, in this order: strict fp32 (of which the last are fetched), what else threads feed (of which the
// last are channel rows), rows of pixels that are turned, fetched ones, copied channels with fetched weights, copied
// channels (of which the first are twins, the last have copied columns).
constexpr int kTileCount = sizeof(kTiles) / sizeof(kTiles[0]);
constexpr int kStrictTiles = 9, kStrictFetchedTiles = 3, kTurnedTiles = 1, kFetchedTiles = 3,
              kLentTiles = 2, kCopiedTiles = 12, kColumnTiles = 4;
constexpr int kFirstLent = kTileCount - kCopiedTiles - kLentTiles,
              kFirstFetched = kFirstLent - kFetchedTiles,
              kFirstTurned = kFirstFetched - kTurnedTiles;
constexpr int kFedTiles = kFirstTurned - kStrictTiles, kChannelTiles = 3,
              kFirstChannels = kFirstTurned - kChannelTiles;
static_assert(kTiles[kStrictTiles - 1].strict && !kTiles[kStrictTiles].strict);
static_assert(kTiles[kStrictTiles - kStrictFetchedTiles].fetched &&
              !kTiles[kStrictTiles - kStrictFetchedTiles - 1].fetched);
static_assert(kTiles[kFirstChannels].channel_rows && kTiles[kFirstTurned].turned);
static_assert(kTiles[kFirstFetched].fetched && kTiles[kFirstLent - 1].fetched);
static_assert(kTiles[kFirstLent].weights_fetched);
static_assert(kTiles[kTileCount - kCopiedTiles].copied &&
              kTiles[kTileCount - kColumnTiles].columns_copied);

// The copy engine fills the very buffers that the consumers read.
CONVT2D_HOST_DEVICE constexpr bool straight(TileRow tile) { return tile.copied && !tile.turned; }
// And brings rows of channels.
CONVT2D_HOST_DEVICE constexpr bool by_channel(TileRow tile) {
  return straight(tile) && !tile.fetched;
}
// Both operands of such a tile are multiplied from shared memory, by a table of its products (hopper_copied.cuh).
CONVT2D_HOST_DEVICE constexpr bool by_steps(TileRow tile) {
  return by_channel(tile) && !tile.weights_fetched;
}
// Producers need no table of the consumers, so they start while these write theirs.
CONVT2D_HOST_DEVICE constexpr bool asked_from_the_start(TileRow tile) {
  return by_steps(tile) || tile.fetched;
}

// Tiles for many channels alone: both operands and the result are whole vectors of them, which the copy engine brings.
CONVT2D_HOST_DEVICE constexpr bool wide(TileRow tile) { return tile.width > 128; }
CONVT2D_HOST_DEVICE constexpr bool lean(TileRow tile) { return wide(tile) || tile.twin; }
// Whose outputs may be lines.
CONVT2D_HOST_DEVICE constexpr bool has_lines(TileRow tile) {
  return by_steps(tile) && !tile.columns_copied && !lean(tile) && tile.width >= 32;
}

// Whose consumers fetch 16-bit words of rows by steps instead of a table: others have no registers for both (what was spilled
// came back behind a tile's stores: unet_up4 fp16 287 -> 331 us).
CONVT2D_HOST_DEVICE constexpr bool has_alike_halves(TileRow tile) {
  return tile.fetched && wide(tile);
}

// Warpgroups with 128 sums a thread and as many that move data, which takes registers too; or, since the copy
// engine needs but one thread, more of them with 64 sums, so that while one stores others multiply. Of wide tiles
// they are two again: 64 positions x 256 columns want 10 bytes of shared memory for 128 products, 64 x 128 want 12.
CONVT2D_HOST_DEVICE constexpr int consumer_groups(TileRow tile) {
  return tile.copied && !tile.weights_fetched && !tile.strict && !lean(tile) ? 4 : 2;
}
// Whose consumers may be two teams, each with tiles of its own: the groups of one multiply while those of the other store.
// (With weights along K, which threads bring, registers do not do: what is spilled comes back once a tile, a tenth of it.)
CONVT2D_HOST_DEVICE constexpr bool may_be_teams(TileRow tile) {
  return by_steps(tile) && tile.columns_copied && consumer_groups(tile) == 4;
}
CONVT2D_HOST_DEVICE constexpr int blocks_together(TileRow tile) { return tile.twin ? 2 : 1; }
CONVT2D_HOST_DEVICE constexpr int producer_groups(TileRow tile) { return tile.copied ? 1 : 2; }
CONVT2D_HOST_DEVICE constexpr int consumers(TileRow tile) { return 128 * consumer_groups(tile); }
CONVT2D_HOST_DEVICE constexpr int producers(TileRow tile) {
  return tile.twin ? 64 : 128 * producer_groups(tile);  // two ask; registers would not do for more
}
CONVT2D_HOST_DEVICE constexpr int threads(TileRow tile) {
  return consumers(tile) + producers(tile);
}
// Of a thread; they add up to what the block starts with, a multiple of 8 for each thread. Of twins all have the same.
CONVT2D_HOST_DEVICE constexpr int consumer_registers(TileRow tile) {
  return !tile.copied ? 160 : consumer_groups(tile) == 2 ? 216 : 104;
}
CONVT2D_HOST_DEVICE constexpr int producer_registers(TileRow tile) {
  return !tile.copied ? 96 : consumer_groups(tile) == 2 ? 72 : 64;
}

// A consumer that fetches pixels has registers for those of two instructions, in strict fp32 of four, so
// that some come while others are multiplied: so many slices.
CONVT2D_HOST_DEVICE constexpr int slices_fetched(TileRow tile) {
  return (tile.strict ? 4 : 2) / tile.operands;
}

CONVT2D_HOST_DEVICE constexpr int operand_positions(TileRow tile) {
  return tile.channel_rows ? tile.width : 64;
}
CONVT2D_HOST_DEVICE constexpr int block_positions(TileRow tile) {
  return consumer_groups(tile) * tile.operands * operand_positions(tile);
}
CONVT2D_HOST_DEVICE constexpr int weight_rows(TileRow tile) {
  return tile.channel_rows ? kChannelRows : tile.width;
}

// How the source comes: a thread loads 8 channels of a pixel, whole slices, or vectors across K; or the
// copy engine brings whole chunks.
enum SourceMode : int32_t {
  kPixels = 0,       // any strides
  kVectors = 1,      // contiguous channels
  kCopied = 2,       // the same, by the copy engine
  kCopiedRows = 3,   // rows of pixels by the copy engine, then turned
  kFetchedRows = 4,  // rows with what is around them
  kTurned = 5,       // 16 bytes of neighbouring pixels, turned on their way (hopper_turn.cuh)
  kTurnedWords = 6,  // the same, word by word: rows are not made of whole vectors
};

// The same of the weights. Turned kernels come with pixels and turned pixels, the others with channels that
// are contiguous.
enum WeightMode : int32_t {
  kResident = -1,      // not the producers' business
  kElements = 0,       // any strides
  kWeightVectors = 1,  // contiguous along K
  kWeightCopied = 2,   // the same, by the copy engine
  kColumnsCopied =
      3,  // columns of a tap contiguous, by the copy engine; the tensor core turns them

  kTurnedKernels = 4,  // [columns][taps] contiguous: NCHW forward
  kTurnedColumns = 5,  // columns of a tap contiguous: NHWC forward
  kTurnedRuns = 6,     // [K][taps] contiguous for a column: NCHW grad_input
};
// Of which kernels there are turned runs: whose eight K a thread can hold, or which come apart in eights.
CONVT2D_HOST_DEVICE constexpr bool turnable_run(int64_t taps) {
  return taps <= 4 || taps == 9 || (taps % 8 == 0 && taps <= kMaxKernelTaps);
}
CONVT2D_HOST_DEVICE constexpr bool copied(WeightMode mode) {
  return mode == kWeightCopied || mode == kColumnsCopied;
}

// How pixel rows are stored: one by one, or as lanes find neighbours. Or NHWC as aligned runs of neighbouring channels:
// columns are dealt to channels so that a thread holds a run; or, where the columns have the channels' order, lanes
// trade. Or NCHW, of what is fetched, as two or four neighbouring positions of a column, which lanes trade for. Or NHWC
// whose channels are whole words but no vectors: by way of shared memory, a position after the other.
enum StoreMode : int32_t {
  kSingles = 0,
  kDealt = 1,
  kTraded = 2,
  kTwos = 3,
  kFours = 4,
  kLines = 5
};
// Whether columns have the order of the channels, all of whose phases lie side by side.
CONVT2D_HOST_DEVICE constexpr bool one_by_one(TileRow tile, int store_mode) {
  return store_mode == kSingles || (has_lines(tile) && store_mode == kLines);
}

// Everything a block needs, passed by value. 32-bit element offsets: larger tensors are declined.
struct GatherParams {
  const void* source;
  const void* weight;
  const void* bias;  // or null
  void* destination;
  int32_t source_stride[4], destination_stride[4];                         // n, c, h, w
  int32_t weight_group, weight_reduce, weight_column, weight_h, weight_w;  // strides
  int32_t batch, groups, reduce, columns;                                  // channels a group
  int32_t window,
      period;  // fetched rows: channels of a patch; chunks after which their tables come again
  // Fetched rows, in bytes: from channel to channel, row to row, image to image. Of rows that are no whole 16 bytes,
  // that is what it is in memory but for multiples of 16, so that all of a patch can be copied in pieces of 16 bytes.
  int32_t channel_pitch, row_pitch, image_pitch;
  int32_t copied_h;     // rows that come of a channel, of which some may be nobody's
  int32_t rows_inside;  // a channel's rows are neighbours, not a row's channels
  float turns;          // for the planner: how often lanes meet in a bank
  // The pieces of a row, and of a patch, that threads bring; 0: the copy engine brings whole rows.
  int32_t row_pieces, brought_pieces;
  int32_t reach;  // elements from the first of a patch to beyond its last piece
  int32_t source_planes, row_elements;  // planes of an image, elements of a row of one
  int32_t pixel_channels;               // that lie side by side there: 1 in NCHW
  // Fetched rows of few channels: all of K is one chunk, whose weights threads bring. A row of a kernel has so many
  // numbers of K, the kernel in a plane so many; without weights are those before the first tap, and one behind the
  // last if need be, which make two numbers of 16 bits a word that is fetched as it lies.
  int32_t one_chunk, in_words;
  int32_t row_numbers, row_lead, plane_numbers;
  uint32_t window_magic, row_pieces_magic, taps_magic;
  int32_t depth;  // K of all chunks: channels, or of fetched pixels their taps too
  int32_t element_bytes;
  int32_t tile_n, tile_h, tile_w;     // positions of a tile that are used
  int32_t tiles_n, tiles_h, tiles_w;  // tiles of the position grid
  uint32_t tiles_h_magic, tiles_w_magic;
  int32_t tile_channels;  // of a column tile
  int32_t column_tiles;
  int32_t plane_h, plane_w;    // pixels; a plane has tile_n images of them
  int32_t planes_h, planes_w;  // residues modulo the source step
  int32_t operand_columns;     // operands side by side: 0 if they are runs
  uint32_t operand_columns_magic;
  int32_t load_h, load_w;  // pixels to load for one image: all planes' rows, units of a row
  int32_t copied_w;        // copied rows: pixels, an odd number of 16 bytes; fetched ones: of a box
  int32_t row_start;       // fetched rows: boxes start at multiples of so many elements
  uint32_t plane_h_magic, plane_w_magic, load_h_magic, load_w_magic, planes_h_magic, planes_w_magic;
  int32_t slices, chunks;                // of a chunk; chunks of K
  int32_t slice_shift;                   // log2 of the slices, unless one_chunk
  int32_t source_stages, weight_stages;  // buffers, an even number; 0 weight stages: all stay
  int32_t part_products, parts;  // products whose weights a stage holds; such parts of a chunk
  // Blocks that share one combination of (group, column tile, phases); phases have numbers of their own, in the order
  // (h, w), or one for all.
  int32_t walkers[kMaxShares], shares;
  int32_t source_mode;
  WeightMode weight_mode;
  WeightMode whole_weight_mode;  // if a stage holds all products of a chunk
  int32_t weight_columns_first;  // of elements: neighbouring threads load neighbouring columns
  int32_t weight_vectors;        // what set_operands finds; weight_mode decides
  int32_t taps;                  // of a kernel
  int32_t kernel_taps;           // the same of turned kernels and runs, else 0
  uint32_t kernel_taps_magic;
  int32_t store_mode;
  int32_t max_products;    // of any combination
  int32_t plane_products;  // of any plane of one
  int32_t overrun;         // pixels an operand may reach beyond the patch
  // The patch in shared memory. The planes of one come together, or one after the other, each with the products
  // that read it: then so many, and the patch is one of them.
  int32_t planes_apart;
  int32_t plane_pixels, patch_pixels;
  int32_t pixel_bytes;   // from a pixel to its neighbour
  int32_t source_half;   // from the first to the second half of a slice
  int32_t source_slice;  // from slice to slice
  int32_t source_low;    // strict: from the high parts of a slice to the low ones
  int32_t patch_bytes;
  // And the weights.
  int32_t product_bytes;   // of a slice, and 16 to spread products over banks; or of a copied chunk
  int32_t weight_slice;    // from slice to slice
  int32_t weight_low;      // strict: as source_low
  int32_t part_bytes;      // of a stage
  int32_t blocks_at_once;  // copied columns: blocks that are one box; 0: each is one of its own
  int32_t lead;            // by_channel(): see GatherChoice
  // Of consumer groups, each with tiles and buffers of the source of its own; weights stay, and are of all.
  int32_t teams;
  AxisTable h, w;  // last, since they are long
  // Fetched rows of words whose taps stand alike in every slice of every chunk, so that nobody looks them up: how far it is in
  // a patch from a slice to the next, of the first one and of every second; both 0: there is a table.
  int32_t even_step, odd_step;
  // Fetched rows of 16 bits: moved by a number when they came, or no word would start where 4 bytes do.
  int32_t shifted;
  // Or, where they are no whole 16 bytes but planes are: runs of whole rows come, so many words of so many rows to a box, and
  // warps spread them, `spread_count` of all channels, to where a patch has them. `spread`: rows of a box, at most.
  int32_t spread, spread_rows, spread_words, spread_boxes, spread_count;
};

// What the copy engine is told (hopper_maps.cpp).
struct TensorMaps {
  CUtensorMap source, weight;
};

// Of the grid.
inline int64_t blocks_of(const GatherParams& p) {
  const int64_t alike = p.shares > 1 ? 1 : int64_t{p.h.groups} * p.w.groups;
  int64_t walkers = 0;
  for (int s = 0; s < p.shares; ++s) walkers += p.walkers[s];
  return int64_t{p.groups} * p.column_tiles * alike * walkers;
}

// Bytes of K that a chunk has, in the elements of shared memory.
CONVT2D_HOST_DEVICE int chunk_bytes(const GatherParams& p) { return kSliceBytes * p.slices; }
// Fetched rows: [image][row][channel][pixel], or [image][channel][row][pixel].
CONVT2D_HOST_DEVICE int fetched_rows_bytes(const GatherParams& p) {
  return p.tile_n * p.image_pitch;
}
// Where rows that are spread came, behind a patch: [box][image][channel][words].
CONVT2D_HOST_DEVICE int spread_at(const GatherParams& p) {
  return (fetched_rows_bytes(p) + 127) / 128 * 128;
}
CONVT2D_HOST_DEVICE int spread_box_bytes(const GatherParams& p) {
  return (p.tile_n * p.window * p.spread_words * 4 + 127) / 128 * 128;
}
// Threads that bring them where the copy engine cannot: three warps, beside the one that asks for weights.
constexpr int kBringers = 96;
// Strict fp32: the last two warps of them write what the tensor core cuts off of weights. Rows that are shifted or spread: they do that.
constexpr int kSplitters = 64, kShifters = 64;
// Copied rows: [image][row][channel of the chunk][pixel], so that neighbouring channels lie in different banks.
constexpr int kRowStages = 2;
CONVT2D_HOST_DEVICE int channel_bytes(const GatherParams& p) {
  return p.copied_w * p.element_bytes;
}
CONVT2D_HOST_DEVICE int row_stage_bytes(const GatherParams& p) {
  const int channels = chunk_bytes(p) / p.element_bytes;
  return (p.tile_n * p.load_h * channels * channel_bytes(p) + 127) / 128 * 128;
}
// Copied columns: a product is blocks of neighbouring columns, each a row for every K of a chunk.
CONVT2D_HOST_DEVICE int column_row(const GatherParams& p) {  // bytes
  const int bytes = p.tile_channels * p.element_bytes;
  return bytes > 128 ? 128 : bytes;
}
CONVT2D_HOST_DEVICE int column_block(const GatherParams& p) {
  return column_row(p) * (chunk_bytes(p) / p.element_bytes);
}
// Positions eight apart in an operand, in pixels.
CONVT2D_HOST_DEVICE int group_pixels(const GatherParams& p) {
  return p.operand_columns ? p.plane_w : kGroup;
}
// Phases side by side in the columns of a tile of pixel rows.
CONVT2D_HOST_DEVICE int stacked(const GatherParams& p, TileRow tile) {
  return tile.channel_rows ? 1 : p.h.slots * p.w.slots;
}

// Units of a tile that a producer loads by: pixels or vectors of them.
CONVT2D_HOST_DEVICE int source_units(const GatherParams& p) {
  return p.tile_n * p.load_h * p.load_w;
}

// Where a table of steps is walked, or rows are fetched, consumer groups that have no position of a tile, which may be smaller
// than a block, do nothing. (Not of copied columns: forward was not measured; nor twins, one of which took a tenth longer
// with a test more.)
CONVT2D_HOST_DEVICE constexpr bool may_rest(TileRow tile) {
  return (by_steps(tile) && !tile.columns_copied && !tile.twin) || tile.fetched;
}
CONVT2D_HOST_DEVICE int of_team(const GatherParams& p, int of_block) {  // without a division
  return p.teams > 1 ? of_block / 2 : of_block;
}
CONVT2D_HOST_DEVICE int busy_groups(const GatherParams& p, TileRow tile) {  // of a team
  if (!may_rest(tile)) return of_team(p, consumer_groups(tile));
  const int each = tile.operands * operand_positions(tile);
  const int last = p.operand_columns
                       ? (p.tile_h + kGroup - 1) / kGroup * kGroup * p.operand_columns * kGroup
                       : ((p.tile_n - 1) * p.plane_h + p.tile_h - 1) * p.plane_w + p.tile_w;
  return (last + each - 1) / each;
}

// Channel rows go to memory through a buffer of each consumer warp: 128 bytes of each of its 16 rows, and
// between them what spreads the lanes' runs of two positions over the banks. So do lines, whose rows are positions.
CONVT2D_HOST_DEVICE constexpr bool staged(TileRow tile) {
  return tile.channel_rows && !tile.weights_fetched;
}
constexpr int kStagedRow = 128, kStagedRows = 16;
CONVT2D_HOST_DEVICE constexpr int staging_pitch(TileRow tile, int element_bytes) {
  const int run = 2 * tile.slots * element_bytes;
  return kStagedRow + (run > 16 ? 16 : 4 * run);
}
CONVT2D_HOST_DEVICE constexpr int staging_bytes(TileRow tile, int element_bytes) {
  return kStagedRows * staging_pitch(tile, element_bytes);
}

// What the consumers look up (hopper_gather.cuh), behind the barriers.
constexpr int kBarriers = 5;  // kinds of them, a stage each
constexpr int kKnown = kBarriers * kMaxStages * 8, kKnownBytes = 320;

// by_channel(): behind the table, how many tiles each of the groups that lead has begun.
constexpr int kLeadersBytes = 8;

// Where turned rows go that nobody wants: one a lane.
constexpr int kDumpBytes = 32 * kHalfBytes;

// A row or column of the sum that stands for a channel (and a phase).
struct ColumnInfo {
  int32_t offset;            // elements from phase (0, 0) of channel 0 of the tensor; -1: nothing
  int16_t phase_h, phase_w;  // in the group
  int32_t channel;           // of the group
  float bias;
};

// Byte offsets in a block's dynamic shared memory; the planner and the kernel share this.
struct SharedMap {
  int32_t barriers, shifts, taps, firsts, offsets, kernel, pieces, dump, columns, positions,
      destinations, staging, sources, rows, patch, patch_stage, weights, weight_stage, total;
};

CONVT2D_HOST_DEVICE SharedMap shared_map(const GatherParams& p, TileRow tile) {
  SharedMap map{};
  int at = 0;
  map.barriers = at;
  at += kKnown;
  at += kKnownBytes;
  map.shifts = at;
  at += p.max_products * 4;
  map.taps = at;
  at += p.max_products * stacked(p, tile) * 4;
  map.firsts = at;
  at += straight(tile) ? (p.planes_apart + 1) * 4 : 0;
  at = (at + 15) / 16 * 16;
  map.offsets = at;
  at += by_channel(tile) ? p.max_products * 8 + kLeadersBytes
        : tile.fetched   ? p.period * (chunk_bytes(p) / p.element_bytes) * 4 *
                               (1 + (p.brought_pieces > 0) + p.one_chunk)
                         : 0;
  map.kernel = at;
  at += p.kernel_taps * 4;
  at = (at + 15) / 16 * 16;
  map.pieces = at;
  at += (p.brought_pieces + p.spread_count + 1) / 2 * 16;
  map.dump = at;
  at += kDumpBytes;
  map.columns = at;
  at += weight_rows(tile) * 16;
  map.positions = at;
  at += block_positions(tile) * 4;
  map.destinations = at;
  at += tile.channel_rows ? block_positions(tile) * 8 : 0;
  map.staging = at;
  at += staged(tile) || (has_lines(tile) && p.store_mode == kLines)
            ? busy_groups(p, tile) * 4 * staging_bytes(tile, p.element_bytes)
            : 0;
  map.sources = at;  // a list for each producer group
  at += tile.copied ? 0 : 2 * (source_units(p) + 3) * 8;
  at = (at + 127) / 128 * 128;
  map.rows = at;
  at += tile.turned ? kRowStages * row_stage_bytes(p) : 0;
  const int boundary = tile.weights_fetched ? kSwizzleRows * 128
                       : straight(tile)     ? kSwizzleRows * chunk_bytes(p)
                                            : 128;
  // Of rows of channels it is a power of two.
  const auto aligned = [&] {
    return by_channel(tile) ? (at + boundary - 1) & -boundary
                            : (at + boundary - 1) / boundary * boundary;
  };
  at = aligned();
  map.patch = at;
  map.patch_stage = p.patch_bytes;
  at += p.teams * p.source_stages * map.patch_stage;
  // And all that an operand has, were its rows one after the other: memcheck wants that.
  const int reach = at + p.overrun * p.pixel_bytes + 64 * kSliceBytes;
  at = aligned();
  map.weights = at;
  map.weight_stage = p.part_bytes;
  at += (p.weight_stages ? p.weight_stages : p.chunks) * map.weight_stage;
  map.total = at > reach ? at : reach;
  return map;
}

}  // namespace convt2d::cuda::hopper
