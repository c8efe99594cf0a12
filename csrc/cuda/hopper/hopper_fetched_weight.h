// hopper, grad_weight whose dY is fetched to registers: NCHW tensors, and channels-last ones in TF32 or, of few output
// channels, in 16 bits.
//
//   dW[ci, co, tap] = sum over pixels of x[ci, pixel] * dY[co, pixel * stride - near_pad + tap * d]
//
// As a GEMM: rows M = output channels, columns N = input channels, reduction K = the pixels of x, 128 bytes of them a
// K tile. wgmma wants its second operand as rows along K. Planes of NCHW's x are such rows as they lie; of channels-last
// words, the copy engine brings squares of 32 pixels x 32 channels, which three warps turn in place. The first operand
// comes from registers: the copy engine brings those pixels of dY that a tile's pixels meet, with zeros around them, and
// consumers fetch from there what a tap wants, wherever it stands.
//
//   x    [input channel][128 B of pixels]
//        and, in strict fp32, what the tensor core cuts off of it, by three warps
//   dY   NCHW            [block of 64 output channels][row][channel][pixel]
//        channels-last   [block of 32 output channels][row][pixel][channel]
//
// Of a tap, few output channels fill but a part of an instruction's 64 rows. There rows of the sum are `pairs` of a tap and
// an output channel, tap by tap: they need not be neighbours in dY, since a thread adds for each of its rows where that
// starts. Such a block has all output channels of a group, and a stage no others. Channels-last, dY lies as in memory,
// [row][pixel][channel], and comes in chunks, the largest power of two of bytes up to 64 that rows are whole ones of. Their
// pairs may also go channel by channel, if neighbours then meet fewer banks twice.
//
// Channels-last numbers of 16 bits (`turned`) are always pairs: x is [block of 64 input channels][pixel][128 B], which the
// tensor core turns. Channels in eights (`octets`) lie in 16 bytes of a pixel, which ldmatrix turns; the copy engine
// permutes these in a chunk, which is up to 128 bytes then, so that neighbouring pixels meet no bank twice.
//
// The copy engine steps from row to row, and starts, at multiples of 16 bytes. Where the rows of NCHW's dY are no such
// multiples, some number of planes is, `residues`: these are one row to it, and a copy brings a part of a row of every
// `residues`-th plane, from the last multiple of 16 bytes on (`odd_rows`). Or the three warps bring such rows, 16 bytes of
// memory at a time (`brought`): in shared memory channels and rows lie as far apart as in memory, but for multiples of 16
// bytes. What comes from beside a row is cleared by the three warps.
//
// Where two neighbouring numbers of dY's rows are words for all of a warpgroup's lanes alike (`in_words`), a thread fetches
// each once for the taps of a kernel row, instead of each number for each tap.
//
// Or tiles are runs, and a copy brings those pixels of dY that lie in memory from a tile's first to its last one, whatever
// rows they are (`planes`, no strict fp32): `residues` copies of one such line. What lies beside a row is another row
// then, so tables that come with a tile stand for each tap, and for what does not exist there are 16 bytes at the end of a
// channel's line, which the three warps clear.
//
// Channels-last words of x, of channels that are no whole 16 bytes, are brought by the three warps too, four or eight bytes
// at a time (`x_piece`).
//
// Where planes of x, or rows, are no such multiples, they come in the same way behind everything else, and the three warps
// move their pixels to where they belong (`shifted`).
//
// Channels-last words of rows that taps read little of come tap by tap (`apart`), [tap][block][row][pixel][channel].
//
// A K tile is a run of pixels of a plane, or a part of a row. Where its pixels stand in dY's patch, a table tells, which
// comes with the tile. A block computes `width` input channels x `y_blocks` blocks of output channels x a rectangle of
// neighbouring taps.
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
#include "core/types.h"
#include "cuda/strict_sums.h"

namespace convt2d::cuda::hopper {

// The warpgroups that multiply have `instructions` each for 32 bytes of K: 64 output channels, or two taps of 32, times
// `width` input channels. Sums of a thread: width / 2 * instructions.
// Strict fp32 (`strict`): every number is the sum of two that the tensor core takes, so a product is three; and as much
// again goes to the sums of a K tile, which ordinary additions join.
// Planes of dY: what a thread fetches of them. Words hold two numbers, which serve neighbouring taps of a kernel row: those
// that a warpgroup's instructions are.
enum class Planes { none, numbers, words };
struct FetchedWeightTile {
  int width, instructions;
  bool strict = false;
  bool channels_last = false;
  int groups = 2;  // that multiply
  bool pairs = false;
  bool turned = false, octets = false;  // 16 bits, channels-last
  Planes planes = Planes::none;
  bool in_words = false;  // rows of 16-bit numbers, fetched as words like those of planes
};
constexpr FetchedWeightTile words_tile(int width, int instructions, int groups) {
  FetchedWeightTile tile{width, instructions, false, false, groups};
  tile.in_words = true;
  return tile;
}
constexpr FetchedWeightTile kFetchedWeightTiles[] = {
    words_tile(128, 2, 2),
    words_tile(64, 4, 2),
    words_tile(64, 3, 3),
    {128, 2, false, false, 2, false, false, false, Planes::words},
    {64, 3, false, false, 3, false, false, false, Planes::words},
    {128, 2, false, false, 2, false, false, false, Planes::numbers},
    {128, 1, false, false, 3, true, false, false, Planes::numbers},
    {64, 5, false, false, 2, false, false, false, Planes::words},  // kernel rows of five taps
    {256, 1},
    {128, 2},
    {64, 4},
    {64, 3, false, false, 3},         // nine taps of 64 channels
    {128, 1, false, false, 2, true},  // pairs of up to 128 taps and channels
    {64, 2, false, false, 2, true},
    {64, 1, false, false, 2, true},
    {64, 1, false, false, 3, true},
    {128, 2, false, false, 2, false, false, false, Planes::numbers},
    {128, 1, false, false, 3, true, false, false, Planes::numbers},
    {128, 1, true},
    {64, 2, true},
    {64, 2, true, false, 2, true},
    {64, 1, true, false, 2, true},
    {64, 1, true, false, 3, true},
    {256, 1, false, true},
    {128, 2, false, true},
    {64, 4, false, true},
    {128, 1, false, true, 3},  // three taps of 64 channels
    {64, 3, false, true, 3},   // nine
    {128, 1, false, true, 2, true},
    {64, 1, false, true, 2, true},
    {128, 1, false, true, 3, true},
    {128, 1, false, true, 2, true, true},
    {128, 1, false, true, 3, true, true},
    {64, 1, false, true, 2, true, true},
    {64, 1, false, true, 3, true, true},
    {128, 1, false, true, 3, true, true, true},
    {64, 1, false, true, 3, true, true, true},
    {64, 2, false, true, 3, true, true, true},
    {32, 2, false, true, 3, true, true, true},
};
// How many they are, in this order; the first are for 16 bits alone, others for TF32.
constexpr int kHalfPlaneTiles = 8, kPlaneTiles = 8, kWordPlaneTiles = 2, kStrictPlaneTiles = 5,
              kChannelsLastTiles = 8, kTurnedWeightTiles = 8;
constexpr int kFetchedWeightTileCount =
    sizeof(kFetchedWeightTiles) / sizeof(kFetchedWeightTiles[0]);
constexpr int kFirstPlane = kHalfPlaneTiles, kFirstWordPlane = kFirstPlane + kPlaneTiles,
              kFirstStrictPlane = kFirstWordPlane + kWordPlaneTiles,
              kFirstChannelsLast = kFirstStrictPlane + kStrictPlaneTiles,
              kFirstTurnedWeight = kFirstChannelsLast + kChannelsLastTiles;
static_assert(kFirstTurnedWeight + kTurnedWeightTiles == kFetchedWeightTileCount);
static_assert(kFetchedWeightTiles[kFirstPlane].planes == Planes::none &&
              kFetchedWeightTiles[kFirstPlane - 1].planes != Planes::none &&
              kFetchedWeightTiles[kFirstStrictPlane].strict &&
              kFetchedWeightTiles[kFirstChannelsLast].channels_last &&
              kFetchedWeightTiles[kFirstTurnedWeight].turned &&
              !kFetchedWeightTiles[kFirstTurnedWeight - 1].turned);

constexpr int kKRow = 128, kKSlice = 32, kKSlices = kKRow / kKSlice;  // bytes of pixels
constexpr int kSquare = 32, kSquareBytes = kSquare * kKRow;  // channels-last: pixels and channels

// Output channels of a block of dY: rows of an instruction, or of half of one. Fewer than that are worth pairs.
constexpr int kPlaneChannels = 64;
CONVT2D_HOST_DEVICE constexpr int cell_channels(FetchedWeightTile tile) {
  return tile.channels_last ? kSquare : kPlaneChannels;
}
// Channels-last words: three warps turn x.
CONVT2D_HOST_DEVICE constexpr bool turns_squares(FetchedWeightTile tile) {
  return tile.channels_last && !tile.turned;
}
// dY lies as in memory, [row][pixel][channel].
CONVT2D_HOST_DEVICE constexpr bool linear(FetchedWeightTile tile) {
  return tile.channels_last && tile.pairs;
}
// Blocks of dY times taps that a block multiplies.
CONVT2D_HOST_DEVICE constexpr int cells(FetchedWeightTile tile) {
  return tile.groups * tile.instructions * 64 / cell_channels(tile);
}
// Slices of which a thread holds the first operand. By planes, those that a tile's last slices do not fill are left out.
CONVT2D_HOST_DEVICE constexpr int slices_at_once(FetchedWeightTile tile) {
  const int all = tile.instructions > 2 ? kKSlices / 2 : kKSlices;
  return tile.planes != Planes::none || (tile.in_words && tile.groups == 3) ? all / 2 : all;
}
CONVT2D_HOST_DEVICE constexpr bool by_planes(FetchedWeightTile tile) {
  return tile.planes != Planes::none;
}
// A warpgroup's instructions are neighbouring taps of a kernel row.
CONVT2D_HOST_DEVICE constexpr bool by_words(FetchedWeightTile tile) {
  return tile.in_words || tile.planes == Planes::words;
}
// Words of a kernel row that hold what a warpgroup's taps want of two neighbouring pixels of x.
CONVT2D_HOST_DEVICE constexpr int row_words(FetchedWeightTile tile) {
  return (tile.instructions + 4) / 2;
}
// Taps that a thread's two rows of an instruction may be of.
CONVT2D_HOST_DEVICE constexpr int taps_of_thread(FetchedWeightTile tile) {
  return tile.pairs ? 2 : 1;
}

// One warp asks the copy engine; the three beside it turn x, split it, or clear what is beside dY's rows, or ask as well.
constexpr int kHelpers = 96, kMostAskers = kHelpers / 32 + 1;
CONVT2D_HOST_DEVICE constexpr int consumers(FetchedWeightTile tile) { return 128 * tile.groups; }
CONVT2D_HOST_DEVICE constexpr int threads(FetchedWeightTile tile) { return consumers(tile) + 128; }
// The three may bring x as well as turn it, in a tile whose columns leave them time: where there are twice as many, turning
// is what is waited for, and took a quarter longer with that beside it.
CONVT2D_HOST_DEVICE constexpr bool may_bring_x(FetchedWeightTile tile) {
  return turns_squares(tile) && !tile.pairs && tile.width == 64 && tile.groups == 2;
}
// Of a thread; together no more than the block starts with, or it waits for ever.
CONVT2D_HOST_DEVICE constexpr int consumer_registers(FetchedWeightTile tile) {
  const bool needs = may_bring_x(tile) || (turns_squares(tile) && tile.pairs);
  return tile.groups == 3 ? (needs || by_planes(tile) ? 144 : 152) : needs ? 200 : 216;
}
CONVT2D_HOST_DEVICE constexpr int helper_registers(FetchedWeightTile tile) {
  const bool needs = may_bring_x(tile) || (turns_squares(tile) && tile.pairs);
  return tile.groups == 3 ? (needs || by_planes(tile) ? 80 : 56) : needs ? 104 : 72;
}
constexpr bool enough_registers() {
  for (const FetchedWeightTile tile : kFetchedWeightTiles)
    if (consumers(tile) * consumer_registers(tile) + 128 * helper_registers(tile) >
        threads(tile) * (65536 / threads(tile) / 8 * 8))
      return false;
  return true;
}
static_assert(enough_registers());

// Everything a block needs, passed by value. 32-bit element offsets: larger tensors are declined.
struct FetchedWeightParams {
  void* weight;     // written when there is one piece
  float* partials;  // else [pieces][kh][kw][ci][co]
  int32_t piece_floats;
  int32_t weight_stride[4];
  int32_t
      together;  // by way of shared memory: dW in one piece, where taps lie side by side; partial sums
  int32_t batch, groups, rows, columns;  // channels of one group: of x, of dY
  int32_t x_h, x_w, y_h, y_w;            // extents
  int32_t stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
  int32_t kernel_h, kernel_w;
  int32_t unit_h, unit_w, y_blocks;   // of a block
  int32_t row_blocks, column_blocks;  // blocks side by side
  int32_t units_h, units_w;
  int32_t element_bytes;
  int32_t runs;         // K tiles are runs of a plane, else parts of rows
  int32_t tile_pixels;  // from one tile to the next: whole rows may be fewer than there is room for
  int32_t image_tiles;  // K tiles of an image
  int32_t row_tiles;    // of a row, if they are parts of rows
  // dY as it comes with a tile: lines, those from one row of x, and of the kernel, to the next; pixels, and those of them
  // that taps read; bytes to the next line, pixel, channel and block.
  int32_t patch_lines, row_lines, tap_lines;
  int32_t patch_pixels, span;
  // From one pixel of x to the next, and from one tap of a kernel row: pixels, bytes of the patch. Where strides are so wide that
  // most pixels are of no tap, each tap has pixels of its own, a copy for each: those that it reads.
  int32_t apart, pixel_step, tap_bytes, tap_copies;
  int32_t line_bytes, pixel_bytes, channel_bytes, y_block_bytes;
  int32_t y_bytes;    // of all of it
  int32_t line_step;  // rows of dY from one line to the next
  // Odd rows: planes that are one row to the copy engine, and their log2; threads that ask for them.
  int32_t odd_rows, residues, residue_shift, askers;
  // Planes: bytes of a tile's tables; whether those of all tiles of an image stay, behind the stages, or each comes with its
  // tile; where a channel's line has its zeros; slices of the last tile of a plane, and of others.
  int32_t tables_bytes, tables_stay, zeros_at, last_slices, slices;
  // Brought rows: dY (and x), how many numbers it has, and how many 16 bytes a line of a channel may lie in.
  const void* y;
  const void* x;
  int32_t x_piece;  // bytes of x at once; 0: the copy engine
  int32_t brought, y_elements, line_pieces;
  int32_t
      line_reach;  // from the first number of a channel's lines to behind the last that may be read
  // Shifted: the same of x as of odd rows of dY.
  int32_t shifted, x_residues, x_residue_shift;
  // Channels-last: bits of a channel's place among 128 bytes, whose 16-byte pieces the copy engine permutes by the
  // pixel. The eight rows of the sum that a warp reads at once are two pieces, `far_piece` apart; the eight after them
  // are `next_piece` from these. So four pixels that are read with them meet no bank twice.
  int32_t far_piece, next_piece;
  int32_t whole_squares;  // channels-last: one copy brings all blocks of channels
  int32_t chunk_shift;    // linear: log2 of a chunk, in numbers
  int32_t taps_inside;    // pairs: tap by tap of a channel, not channel by channel of a tap
  int32_t swaps;          // a bit of a pixel's number, or none: see swapped()
  int32_t row_start;      // of NCHW's dY, where boxes of rows start: see may_start_by_sectors()
  int32_t rows_swap;      // see rows_swapped()
  int32_t stages, split;
};

// What the copy engine is told.
struct FetchedWeightMaps {
  CUtensorMap x, y;
};

// Output channels of a block, of planes or of pairs.
CONVT2D_HOST_DEVICE int block_columns(const FetchedWeightParams& p, FetchedWeightTile tile) {
  return tile.pairs ? p.columns : p.y_blocks * kPlaneChannels;
}
// Places of pixels in a tile.
CONVT2D_HOST_DEVICE int tile_pixels(const FetchedWeightParams& p) {
  return kKRow / p.element_bytes;
}
// A lane fetches two neighbouring pixels. Where strides are even, the first ones of a warp's lanes meet half of the banks,
// and the second ones the others; so in every second lane, or every second two, they change places. NCHW, 16-bit numbers.
CONVT2D_HOST_DEVICE int swapped(const FetchedWeightParams& p, int pixel) {
  return (pixel & p.swaps) != 0;
}
CONVT2D_HOST_DEVICE int place_in_table(const FetchedWeightParams& p, int pixel) {
  return pixel ^ swapped(p, pixel);
}
// Boxes of rows of an even stride may start at multiples of 32 bytes, and lie an odd number of these apart, for the copy engine's
// sake (TensorBox). Rows four apart then meet the same banks, of which an even stride leaves a half: so the second four rows of a
// warp's eight fetch the second of two 16-bit pixels first.
CONVT2D_HOST_DEVICE constexpr bool may_start_by_sectors(FetchedWeightTile tile) {
  return !tile.channels_last && !tile.pairs && !by_planes(tile);
}
CONVT2D_HOST_DEVICE bool rows_swapped(const FetchedWeightParams& p, int lane) {
  return p.rows_swap != 0 && (lane & 16) != 0;
}
// Where patches of dY are rows of numbers: those of a pixel.
CONVT2D_HOST_DEVICE int pixel_numbers(const FetchedWeightParams& p, FetchedWeightTile tile) {
  return tile.channels_last ? p.columns : 1;
}
CONVT2D_HOST_DEVICE constexpr int x_bytes(FetchedWeightTile tile) { return tile.width * kKRow; }
CONVT2D_HOST_DEVICE constexpr int low_bytes(FetchedWeightTile tile) {
  return tile.strict ? x_bytes(tile) : 0;
}
// Odd rows: channels of a block of dY that one copy brings, and the residue of such a row of the sum.
CONVT2D_HOST_DEVICE int residue_channels(const FetchedWeightParams& p) {
  return kPlaneChannels >> p.residue_shift;
}
CONVT2D_HOST_DEVICE int residue_of(const FetchedWeightParams& p, int row) {
  return row * p.residues / kPlaneChannels;
}
CONVT2D_HOST_DEVICE bool brings_x(const FetchedWeightParams& p, FetchedWeightTile tile) {
  return may_bring_x(tile) && p.x_piece > 0;
}
CONVT2D_HOST_DEVICE bool helped(const FetchedWeightParams& p, FetchedWeightTile tile) {
  return tile.strict || turns_squares(tile) || p.odd_rows || p.brought || p.shifted;
}
// Warps that ask the copy engine for tiles by turns: for one of them that takes as long as it takes others to fetch and
// multiply a small tile. Those beside it ask too where they have nothing else to do (NCHW). No more than there are stages,
// or one would be two rounds ahead of a barrier, whose parity does not tell.
CONVT2D_HOST_DEVICE constexpr bool may_take_turns(FetchedWeightTile tile) {
  return !tile.channels_last && !tile.strict && !by_planes(tile);
}
CONVT2D_HOST_DEVICE int asking_warps(const FetchedWeightParams& p, FetchedWeightTile tile) {
  if (!may_take_turns(tile) || helped(p, tile)) return 1;
  return p.stages < kMostAskers ? p.stages : kMostAskers;
}
// Turned: bytes of a pixel of x in a block of its channels, and of such a block.
CONVT2D_HOST_DEVICE constexpr int turned_row(FetchedWeightTile tile) {
  return tile.width < 64 ? tile.width * 2 : kKRow;
}
CONVT2D_HOST_DEVICE constexpr int turned_block(FetchedWeightTile tile) {
  return kKRow / 2 * turned_row(tile);
}
CONVT2D_HOST_DEVICE int chunk_bytes(const FetchedWeightParams& p) {
  return p.element_bytes << p.chunk_shift;
}
// Shifted: a channel's pixels as they come, and those of all channels.
constexpr int kShiftedRow = kKRow + 16;
// Planes: where a tile's pixels stand for each tap of a block; or, for each warpgroup, where the words of two neighbouring
// ones do. Of pixels, or pairs of them, those of a lane and a slice lie together, as the tensor core wants them.
constexpr int kMostTilePixels = 64, kTableOfTap = kMostTilePixels * 4;
CONVT2D_HOST_DEVICE constexpr int pair_place(int pair) {
  return pair / 8 * 8 + pair % 4 * 2 + pair / 4 % 2;
}
CONVT2D_HOST_DEVICE constexpr int number_place(int pixel, int element_bytes) {
  return 4 * (element_bytes == 4 ? pair_place(pixel) : pair_place(pixel / 2) * 2 + pixel % 2);
}
CONVT2D_HOST_DEVICE constexpr int table_of_words(FetchedWeightTile tile) {
  return kMostTilePixels / 2 * row_words(tile) * 4;
}
CONVT2D_HOST_DEVICE int shifted_bytes(const FetchedWeightParams& p, FetchedWeightTile tile) {
  return p.shifted ? tile.width * kShiftedRow : 0;
}
// What the copy engine brings for a K tile; where dY starts; where x comes from, if it is shifted.
CONVT2D_HOST_DEVICE int copied_bytes(const FetchedWeightParams& p, FetchedWeightTile tile) {
  return (p.shifted           ? shifted_bytes(p, tile)
          : brings_x(p, tile) ? 0
                              : x_bytes(tile)) +
         (p.brought ? 0 : p.y_bytes);
}
CONVT2D_HOST_DEVICE constexpr int y_at(FetchedWeightTile tile) {
  return x_bytes(tile) + low_bytes(tile);
}
CONVT2D_HOST_DEVICE int planes_tables_at(const FetchedWeightParams& p, FetchedWeightTile tile) {
  return (y_at(tile) + p.y_bytes + 127) / 128 * 128;
}
CONVT2D_HOST_DEVICE int shifted_at(const FetchedWeightParams& p, FetchedWeightTile tile) {
  return planes_tables_at(p, tile) +
         (by_planes(tile) && !p.tables_stay ? p.tables_bytes : 0);  // as the copy engine wants it
}
CONVT2D_HOST_DEVICE int kept_tables_bytes(const FetchedWeightParams& p) {
  return p.tables_stay ? p.image_tiles * p.tables_bytes : 0;
}
CONVT2D_HOST_DEVICE int stage_bytes(const FetchedWeightParams& p, FetchedWeightTile tile) {
  const int end = shifted_at(p, tile) + shifted_bytes(p, tile);
  return (end + 1023) / 1024 * 1024;  // where a swizzle starts
}

// Shared memory: barriers; for each stage where its pixels stand and, for odd rows, where these start, [line][residue];
// more barriers for what the helpers have done; the stages.
constexpr int kMostFetchedStages = 8, kMostLeads = 32;
constexpr int kFetchedTablesAt = 16 * kMostFetchedStages, kFetchedStagesAt = 4096;
constexpr int kTableBytes = (kMostTilePixels + kMostLeads) * 4;
constexpr int kHelpedAt = kFetchedTablesAt + kMostFetchedStages * kTableBytes;  // barriers
static_assert(kHelpedAt + kMostFetchedStages * 8 <= kFetchedStagesAt);
// Or, at the end, where the stages were: dW of the block, [tap][input channel][output channel], where neither lanes that
// write nor those that read meet banks. Pairs: [input channel][tap][output channel].
CONVT2D_HOST_DEVICE int together_row(const FetchedWeightParams& p, FetchedWeightTile tile) {
  const int pairs = p.unit_h * p.unit_w * (p.columns | 1);
  return (tile.pairs ? (pairs + 31) / 32 * 32 : p.y_blocks * kPlaneChannels) + 4;
}
CONVT2D_HOST_DEVICE int together_tap(const FetchedWeightParams& p, FetchedWeightTile tile) {
  return tile.pairs ? p.columns | 1 : tile.width * together_row(p, tile) + 8;
}
CONVT2D_HOST_DEVICE int together_bytes(const FetchedWeightParams& p, FetchedWeightTile tile) {
  return 4 * (tile.pairs ? tile.width * together_row(p, tile)
                         : p.unit_h * p.unit_w * together_tap(p, tile));
}
CONVT2D_HOST_DEVICE int fetched_shared_bytes(const FetchedWeightParams& p, FetchedWeightTile tile) {
  const int stages = p.stages * stage_bytes(p, tile) + kept_tables_bytes(p);
  const int sums = p.together ? together_bytes(p, tile) : 0;
  return kFetchedStagesAt + (stages > sums ? stages : sums);
}

// Whose grad_weight this is.
inline bool is_fetched_weight(const Problem& problem) {
  const auto both = [&](Layout layout) {
    return problem.x_layout == layout && problem.y_layout == layout;
  };
  return both(Layout::nchw) ||
         (both(Layout::nhwc) && problem.dtype == DType::f32 && !is_strict(problem));
}
// Or may be: the plan tells.
inline bool may_be_turned(const Problem& problem) {
  return problem.x_layout == Layout::nhwc && problem.y_layout == Layout::nhwc &&
         element_size(problem.dtype) == 2 && problem.group_out() < kPlaneChannels;
}
inline bool is_fetched_weight(const Problem& problem, const Plan& plan) {
  return is_fetched_weight(problem) || (may_be_turned(problem) && plan.row >= kFirstTurnedWeight &&
                                        plan.row < kFetchedWeightTileCount);
}
// Every plan there is, in no order; and the best. `reason` says why there is none.
std::vector<Plan> fetched_weight_plans(const Problem& problem, const Device& device,
                                       std::string& reason);
Decision fetched_weight_plan(const Problem& problem, const Device& device);
// What a plan's kernel is told, and how many blocks it has.
FetchedWeightParams fetched_weight_params(const Problem& problem, const Plan& plan,
                                          const Args& args);
FetchedWeightMaps fetched_weight_maps(const FetchedWeightParams& params, int row, const Args& args);
int64_t fetched_weight_blocks(const FetchedWeightParams& params);

void launch_fetched_grad_weight(const Problem& problem, const Plan& plan, const Args& args);

// hopper_fetched_weight.cu
void launch_fetched_weight(DType dtype, int row, const FetchedWeightParams& params,
                           const FetchedWeightMaps& maps, int64_t blocks, void* stream);

}  // namespace convt2d::cuda::hopper
