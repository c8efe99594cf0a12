// Which tiles of fetched grad_weight fit a problem, their predicted times, and what a kernel is told of one.
#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <numeric>

#include "core/phases.h"
#include "cuda/cuda_families.h"
#include "cuda/gather_params.h"
#include "cuda/hopper/hopper_fetched_weight.h"
#include "cuda/hopper/hopper_weight_shape.h"
#include "cuda/strict_sums.h"
#include "cuda/tensor_map.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda::hopper {
namespace {

// Fitted to 4964 times on the H200 (kernel_bench sweep of bench/layers.json, NCHW in fp16, tf32 and strict fp32, NHWC in
// tf32; 2026-11-23): chosen plans are 1.1 % slower than the best that was tried. What is `counted` was not fitted: tiles
// with it took 1.0 to 1.4 times what comes out.
constexpr double kClock = 1700;         // cycles a microsecond
constexpr double kLaunch = 5.5;         // us
constexpr double kBlock = 13800;        // cycles, of a block beside its K tiles
constexpr double kStored = 39.6;        // a sum of each thread, on its way out
constexpr double kStoredPiece = 28;     // to NCHW's partial sums, from shared memory (counted)
constexpr double kFetchedHalf = 61;     // a slice of the first operand, 16-bit numbers
constexpr double kFetchedSwapped = 40;  // 16-bit numbers whose lanes meet no bank twice (counted)
constexpr double kFetchedWord = 39.5;   // or words
constexpr double kFetchedPixel = 12;    // the same of channels-last
constexpr double kBringPiece = 20;      // 32 pieces of x that threads bring
constexpr double kFetchedOctets = 26;   // octets (counted)
constexpr double kLeastCycles = 24;     // of the tensor core, for a slice of few columns (counted)
constexpr double kTapTable = 45;        // more, where every tap has a table
constexpr double kTapWords = 15;        // the same of words (counted)
constexpr double kFetchedRowWord =
    21;  // a word of a kernel row, of a slice, times the stride (counted)
constexpr double kRowWord =
    16.7;  // the same of rows, by 350 times (2026-11-26); what it is dealt out to, a tap
constexpr double kRowTap = 19.6;
constexpr double kRowStep = 0.8;    // more of both, with each step of the stride
constexpr double kListed = 24;      // 32 entries of tables by taps, for who asks (counted)
constexpr double kStrict = 1.107;   // strict fp32, over what its multiplications take
constexpr double kApart = 1.1;      // all of it, where dY comes tap by tap (counted)
constexpr double kCopy = 250;       // a copy of odd rows, for who asks
constexpr double kShift = 13.4;     // a channel of x that is shifted, for three warps
constexpr double kShiftTwo = 13;    // where they start at multiples of 8 bytes (counted)
constexpr double kBring = 39.1;     // 32 pieces of brought rows, the same
constexpr double kBringLast = 180;  // the same of channels-last rows
constexpr double kClear = 260;      // what is beside 64 channels of such a row, the same
constexpr int kFewCopies = 4;       // of odd rows: one thread asks
constexpr double kL2Bytes = 38.7;   // a cycle
// More, where 16-bit blocks are 128 x 256 channels of one tap, and of words where they are 256 (lama_up1, cyclegan_up1,
// pix2pix_inner and yolov8l_proto, 0.73 to 0.86 of what was predicted without, 2026-11-26).
constexpr double kL2Wide = 1.2;
constexpr double kShortLine = 2.15;  // cycles more for a row of a channel of dY, where short_rows()
constexpr double kRest = 0.14;       // of what is less busy that is not hidden
constexpr double kMemoryRate = 0.95;  // of the copy rate
constexpr double kBeside = 0.031;     // of the lesser of work and bytes
// The same of pairs in NCHW, whose tiles are small, and of those of 64 output channels or more (2026-11-25).
constexpr double kBesidePairs = 0.6, kMostBesidePairs = 26;  // us (2026-11-29)
constexpr double kBesideManyPairs = 0.4;
// Cycles where odd rows of 16 bits are of several kernel rows, so that of blocks of as many taps the others are taken
// (kernelbench_2_91: 395 us for 440).
constexpr double kOddLines = 1.01;
// Of words that come as they lie, in wide tiles: what taps that there are not take less (lama_up1: 310 us for 331, cyclegan_up1 85 for 93).
constexpr double kMissing = 0.45;
constexpr double kFiveTaps =
    1.28;  // by planes, over what is counted (kernelbench_2_11, 2026-11-26)
constexpr double kPartialRate = 1.96;     // times the copy rate's time, to write and to add up
constexpr double kScatteredRate = 0.473;  // the same of dW's numbers, each in a sector of its own

constexpr int64_t kMostPlaneLine = 4 * kMostSpan;  // bytes
constexpr int64_t kLongRow = 64;                   // words of dY that rows bring as well as planes
constexpr int64_t kMostKept = 24 << 10;            // bytes of tables
constexpr int64_t kMostBrought = 1 << 20;          // bytes of a K tile, more than any block has

constexpr int kManyPairs = 8;  // output channels, of which a warp's rows of the sum are of few taps

constexpr int kUndecided = -1;
struct Choice {
  int row;                       // of kFetchedWeightTiles
  int y_blocks, unit_h, unit_w;  // see FetchedWeightParams
  bool runs, brought, apart;
  int stages;
  int split;  // pieces of the reduction
  // See FetchedWeightParams. Which is better takes microseconds to find out, so a plan remembers it.
  int taps_inside = kUndecided;
  bool whole_rows = false;  // a run, by planes, is some rows of x
  bool sectors = false;     // see may_start_by_sectors()
};

bool by_sectors(const Problem& problem, const Choice& choice) {
  const Axis& w = problem.w;
  const int64_t row_bytes = w.out * static_cast<int64_t>(element_size(problem.dtype));
  return may_start_by_sectors(kFetchedWeightTiles[choice.row]) && !choice.brought &&
         !choice.apart && w.stride % 4 == 2 && row_bytes % 32 == 0;
}

int64_t combinations(const FetchedWeightParams& p) {
  return int64_t{p.groups} * p.row_blocks * p.column_blocks * p.units_h * p.units_w;
}
// Copies of odd rows for a K tile.
int odd_copies(const FetchedWeightParams& p) {
  return p.odd_rows ? p.y_blocks * p.patch_lines * p.residues : 0;
}
int64_t k_tiles(const FetchedWeightParams& p) { return int64_t{p.batch} * p.image_tiles; }

// Whether rows of so many pixels are multiples of 16 bytes.
bool whole_rows(int64_t pixels, const Problem& problem) {
  return pixels * static_cast<int64_t>(element_size(problem.dtype)) % 16 == 0;
}

// Whether the copy engine takes long for rows of NCHW's dY, since they are parts of 64 bytes, for which it fetches more.
bool short_rows(const Problem& problem) {
  const int64_t bytes = problem.w.out * static_cast<int64_t>(element_size(problem.dtype));
  return problem.y_layout == Layout::nchw && bytes < 128 && bytes % 64 != 0;
}

// How many planes of so many pixels are a multiple of 16 bytes, a power of two, and its log2. Whether all channels, and
// those of a group, are so many or more of them.
bool planes_add_up(int64_t pixels, int64_t group, const Problem& problem, int32_t& planes,
                   int32_t& shift) {
  while (!whole_rows(pixels * planes, problem)) planes *= 2, ++shift;
  return group * problem.groups % planes == 0 && (problem.groups == 1 || group % planes == 0);
}

// How often a load of linear dY goes to shared memory, on average over the pairs of a block's first warps.
double conflicts(const FetchedWeightParams& p, FetchedWeightTile tile) {
  constexpr int kLoads = 4;
  const int step = p.stride_w * p.pixel_bytes;  // from pixel to pixel of x
  const int taps = p.unit_h * p.unit_w;
  int trips = 0;
  for (int load = 0; load < kLoads; ++load) {
    int words[32 * 4], count = 0, met[32] = {}, most = 0;  // different ones, of a bank
    for (int lane = 0; lane < (tile.octets ? 8 : 32); ++lane) {
      const int pair = load * 8 + (tile.octets ? 0 : lane / 4);
      const int tap = p.taps_inside ? pair % taps : pair / p.columns;
      const int channel = p.taps_inside ? pair / taps : pair % p.columns;
      if (tap >= taps || channel >= p.columns) continue;
      int at = tap / p.unit_w * p.tap_lines * p.line_bytes +
               tap % p.unit_w * p.dilation_w * p.pixel_bytes + channel * p.element_bytes +
               (tile.octets ? lane : lane % 4 * (4 / p.element_bytes)) * step;
      if (tile.octets) at ^= at >> 3 & (chunk_bytes(p) - 1 & 0x70);
      for (int word = at / 4; word < at / 4 + (tile.octets ? 4 : 1); ++word) {
        if (std::find(words, words + count, word) != words + count) continue;
        words[count++] = word;
        most = std::max(most, ++met[word % 32]);
      }
    }
    trips += most;
  }
  return double(trips) / kLoads;
}

// Everything that follows from the problem and the choice, pointers and strides aside. Returns why it cannot be done, or
// an empty string.
std::string shape(const Problem& problem, const Choice& choice, FetchedWeightParams& p) {
  const FetchedWeightTile tile = kFetchedWeightTiles[choice.row];
  const int64_t size = static_cast<int64_t>(element_size(problem.dtype)), vector = 16 / size;
  const Axis &h = problem.h, &w = problem.w;
  const int64_t pixels = kKRow / size;
  p = {};
  set_weight_extents(problem, p);
  // Of a block of dY, as they come.
  const int64_t channels = tile.pairs ? p.columns : cell_channels(tile);
  set_geometry(problem, p);
  p.dilation_w = static_cast<int32_t>(w.dilation);
  p.element_bytes = static_cast<int32_t>(size);
  p.unit_h = choice.unit_h;
  p.unit_w = choice.unit_w;
  p.y_blocks = choice.y_blocks;
  p.units_h = static_cast<int32_t>(ceil_div(h.kernel, choice.unit_h));
  p.units_w = static_cast<int32_t>(ceil_div(w.kernel, choice.unit_w));
  p.row_blocks = static_cast<int32_t>(ceil_div(p.rows, tile.width));
  p.column_blocks = static_cast<int32_t>(
      tile.pairs ? 1 : ceil_div(p.columns, choice.y_blocks * cell_channels(tile)));
  p.stages = choice.stages;
  p.split = choice.split;
  p.runs = choice.runs;
  p.residues = p.x_residues = 1;
  if (h.stride > kMostStep) return "the copy engine steps over 7 rows at most";
  if (tile.channels_last) {
    if (tile.pairs) {
      if (problem.groups > 1) return "pairs of groups";
      p.brought = choice.brought;
      if (!p.brought && !whole_rows(w.out * p.columns, problem))
        return "rows of dY are not whole vectors";
      const int64_t row = w.out * p.columns * size, most = tile.octets ? kKRow : kKRow / 2;
      for (int64_t chunk = size; chunk < most && row % (2 * chunk) == 0; chunk *= 2)
        ++p.chunk_shift;
    }
    const bool whole_x = problem.group_in() % vector == 0;
    if (!whole_x) p.x_piece = problem.group_in() % 2 == 0 ? 8 : 4;
    if ((!whole_x && !may_bring_x(tile)) || (problem.out_channels % vector != 0 && !tile.pairs) ||
        (problem.groups > 1 && p.columns % vector != 0))
      return "channels are not whole vectors";
    p.whole_squares = !tile.pairs && p.rows % kSquare == 0 && p.columns % kSquare == 0;
    const bool even = w.stride % 2 == 0 && !choice.apart;  // from pixel to pixel in the patch
    p.far_piece = even ? 16 : 64;
    p.next_piece = even ? 32 : 16;
  } else {
    if (tile.pairs && !whole_rows(by_planes(tile) ? h.out * w.out : w.out, problem))
      return "pairs are of rows, or planes, that are whole vectors";
    p.brought = choice.brought;
    if (p.brought && tile.in_words) return "brought rows are not fetched as words";
    p.odd_rows = by_planes(tile) || (!whole_rows(w.out, problem) && !p.brought);
    if (p.odd_rows) {
      if (!planes_add_up(h.out * w.out, p.columns, problem, p.residues, p.residue_shift))
        return "planes of dY do not add up to whole vectors";
      if (p.residues * (by_planes(tile) ? 1 : choice.unit_h) > kMostLeads)
        return "a tile has too many rows of dY";
      if (choice.runs && !by_planes(tile)) return "rows of dY are not whole vectors";
    }
    p.shifted = !whole_rows(choice.runs ? h.in * w.in : w.in, problem);
    if (p.shifted && !planes_add_up(h.in * w.in, p.rows, problem, p.x_residues, p.x_residue_shift))
      return "planes of x do not add up to whole vectors";
  }
  int64_t run = pixels;
  if (choice.whole_rows) {
    run = ceil_div(h.in, ceil_div(h.in * w.in, pixels)) * w.in;
    // The copy engine starts at multiples of 16 bytes; where it starts too early, pixels are moved by 8.
    if (run >= pixels || run * size % (p.shifted ? 8 : 16) != 0)
      return "rows of x are not parts of a tile";
  }
  p.tile_pixels = static_cast<int32_t>(run);
  p.row_tiles = static_cast<int32_t>(ceil_div(w.in, pixels));
  p.image_tiles =
      static_cast<int32_t>(choice.runs ? ceil_div(h.in * w.in, run) : h.in * p.row_tiles);
  const int64_t columns = choice.runs ? w.in : std::min(w.in, pixels);
  const int64_t rows = std::min(h.in, !choice.runs         ? 1
                                      : pixels % w.in == 0 ? pixels / w.in
                                                           : (pixels + w.in - 2) / w.in + 1);
  // Lines between those that are read need not come: of one row of x, or of one row of the kernel.
  const bool one_row = (p.odd_rows || p.brought) && !choice.runs;
  const int64_t step = one_row ? h.dilation : choice.unit_h > 1 ? 1 : h.stride;
  p.line_step = static_cast<int32_t>(step);
  p.row_lines = static_cast<int32_t>(h.stride / step);
  p.tap_lines = static_cast<int32_t>(one_row ? 1 : h.dilation);
  const int64_t lines = (rows - 1) * p.row_lines + (choice.unit_h - 1) * p.tap_lines + 1;
  const int64_t span = (columns - 1) * w.stride + (choice.unit_w - 1) * w.dilation + 1;
  // Neighbouring channels of planes lie an odd number of 16 bytes apart, in different banks, as lines of chunks; or of 32.
  const int64_t chunk = int64_t{1} << p.chunk_shift;
  const int64_t chunks = ceil_div(chunk - 1 + span * p.columns, chunk);
  const int64_t beyond = tile.in_words ? 2 : 0;  // of a last word
  p.row_start = static_cast<int32_t>(choice.sectors ? 2 * vector : vector);
  const int64_t patch =
      linear(tile)   ? chunks | (tile.octets ? 0 : 1)
      : choice.apart ? columns
      : tile.channels_last
          ? span
          : (ceil_div(p.row_start - 1 + span + beyond, p.row_start) | 1) * p.row_start;
  if (!p.brought && !by_planes(tile) &&
      ((choice.apart ? (columns - 1) * w.stride + 1 : patch) > kMostSpan ||
       (!p.odd_rows && (lines - 1) * step + 1 > kMostSpan)))
    return "a tile is too long for the copy engine";
  p.patch_lines = static_cast<int32_t>(lines);
  p.patch_pixels = static_cast<int32_t>(patch);
  p.span = static_cast<int32_t>(span);
  p.pixel_bytes = static_cast<int32_t>(
      linear(tile) || !tile.channels_last ? pixel_numbers(p, tile) * size : kKRow);
  p.channel_bytes = static_cast<int32_t>(tile.channels_last ? size : patch * size);
  p.line_bytes = static_cast<int32_t>(patch * (linear(tile) ? chunk_bytes(p) : channels * size));
  p.y_block_bytes = static_cast<int32_t>(lines * p.line_bytes);
  p.apart = choice.apart;
  p.pixel_step = static_cast<int32_t>(choice.apart ? 1 : w.stride);
  p.tap_copies = choice.apart ? choice.unit_w : 1;
  p.tap_bytes = static_cast<int32_t>(choice.apart ? choice.y_blocks * p.y_block_bytes
                                                  : w.dilation * p.pixel_bytes);
  p.y_bytes = p.tap_copies * choice.y_blocks * p.y_block_bytes;
  if (p.brought) {
    if (problem.batch * problem.out_channels * h.out * w.out * size > INT32_MAX)
      return "dY has 2 GiB or more, which threads do not bring";
    // From a pixel to where a tap reads, in numbers of dY, outside of it as well: 32 bits hold both.
    const int64_t numbers = pixel_numbers(p, tile);
    if (((h.near_pad + (h.kernel - 1) * h.dilation) * w.out + w.near_pad +
         (w.kernel - 1) * w.dilation) *
            numbers >
        INT32_MAX / 4)
      return "taps lie too far apart for threads that bring";
    // Lines of all channels; what is 16 bytes in memory is that here.
    const int64_t line = span * numbers * size, row = w.out * numbers * size,
                  pieces = (line + 2 * 15) / 16;
    const int64_t channel = linear(tile) ? size : (pieces | 1) * 16 + row * h.out % 16;
    const int64_t line_bytes =
        (linear(tile) ? pieces * 16 : choice.y_blocks * kPlaneChannels * channel) + row * step % 16;
    if (lines * line_bytes > kMostBrought) return "a tile is too long for shared memory";
    p.line_pieces = static_cast<int32_t>(pieces);
    p.line_reach = static_cast<int32_t>((lines - 1) * step * w.out * numbers + pieces * vector);
    p.channel_bytes = static_cast<int32_t>(channel);
    p.y_block_bytes = kPlaneChannels * p.channel_bytes;
    p.line_bytes = static_cast<int32_t>(line_bytes);
    p.y_bytes = static_cast<int32_t>(ceil_div(lines * line_bytes + 15, 16) * 16);
    p.y_elements = static_cast<int32_t>(problem.batch * problem.out_channels * h.out * w.out);
  }
  if (choice.taps_inside != kUndecided) {
    p.taps_inside = choice.taps_inside;
  } else if (linear(tile) && !tile.octets) {
    const double tap_by_tap = conflicts(p, tile);
    p.taps_inside = 1;
    if (conflicts(p, tile) >= tap_by_tap) p.taps_inside = 0;
  }
  if (size == 2 && !tile.channels_last && !by_words(tile) &&
      (!tile.pairs || p.columns >= kManyPairs)) {
    if (choice.sectors)
      p.rows_swap = 1;
    else
      p.swaps = w.stride % 4 == 2 ? 4 : w.stride % 8 == 4 ? 2 : 0;
  }
  if (by_words(tile)) {
    if ((choice.runs && w.in % 2 != 0) || w.out % 2 != 0) return "rows are not whole words";
    if (w.stride > 2 || w.dilation > 1) return "a word does not hold two taps";
    const bool alone = choice.unit_h == 1 && !by_planes(tile);  // taps beyond the row are none
    if (choice.y_blocks > 1 || (!alone && choice.unit_w % tile.instructions != 0))
      return "a warpgroup's taps are not of one kernel row";
  }
  if (by_planes(tile)) {
    // From one pixel to the next dY's goes forth, from one row to the next too.
    if (h.stride * w.out < w.stride * w.in) return "rows of dY are shorter than those of x";
    p.slices = static_cast<int32_t>(ceil_div(run, kKSlice / size));
    p.last_slices = static_cast<int32_t>(ceil_div((h.in * w.in - 1) % run + 1, kKSlice / size));
    // The last of a tile's pixels, as many rows on as it can be.
    const int64_t last = std::min(h.in * w.in, run) - 1;
    const int64_t on = std::min((w.in - std::gcd(w.in, run) + last) / w.in, h.in - 1);
    const int64_t reach = on * h.stride * w.out + (last - on * w.in) * w.stride +
                          (choice.unit_h - 1) * h.dilation * w.out +
                          (choice.unit_w - 1) * w.dilation + 1;
    if (reach * size > kMostPlaneLine) return "a tile is too long for the copy engine";
    const int64_t vectors = ceil_div(reach + vector - 1, vector);
    p.zeros_at = static_cast<int32_t>(vectors * 16);
    p.channel_bytes = static_cast<int32_t>((vectors + 1 | 1) * 16);
    if (p.channel_bytes > kMostPlaneLine) return "a tile is too long for the copy engine";
    p.patch_lines = 1;
    p.tables_bytes = tile.planes == Planes::words
                         ? choice.unit_h * choice.unit_w / tile.instructions * table_of_words(tile)
                         : choice.unit_h * choice.unit_w * kTableOfTap;
    p.tables_stay = int64_t{p.image_tiles} * p.tables_bytes <= kMostKept;
    p.y_block_bytes = static_cast<int32_t>(channels * p.channel_bytes);
    p.y_bytes = choice.y_blocks * p.y_block_bytes;
  }
  // Who splits has no time to ask.
  p.askers = !tile.strict && odd_copies(p) > kFewCopies ? kMostAskers : 1;
  return {};
}

// Slices of a K tile that have pixels, on average over a plane; by planes, those that are multiplied.
double mean_slices(const FetchedWeightParams& p, FetchedWeightTile tile) {
  if (by_planes(tile)) {
    const auto at_once = [&](int slices) { return round_up(slices, slices_at_once(tile)); };
    return double((p.image_tiles - 1) * at_once(p.slices) + at_once(p.last_slices)) / p.image_tiles;
  }
  constexpr int kPixels = kKSlice / 2;
  const int64_t of_plane = p.runs ? ceil_div(int64_t{p.x_h} * p.x_w, int64_t{kPixels})
                                  : int64_t{p.x_h} * ceil_div(p.x_w, kPixels);
  return double(of_plane) / p.image_tiles;
}

// Of a K tile.
double tile_cycles(const Problem& problem, const FetchedWeightParams& p, FetchedWeightTile tile) {
  const bool half = p.element_bytes == 2;
  const double products = tile.strict ? 3 : 1;
  // Of a K tile; some tiles leave out those beyond a plane.
  const double slices = tile.turned || by_planes(tile) ? mean_slices(p, tile) : kKSlices;
  const double instructions = slices * tile.groups * tile.instructions;
  const double mma = instructions * products * std::max(tile.width / 2.0, kLeastCycles);
  // Loads of the first operand by four warps, the second operand, copies.
  const double stage = stage_bytes(p, tile);
  const double trips =
      by_planes(tile) ? 36
                      : (tile.octets || !half ? 16 : 32) * (linear(tile) ? conflicts(p, tile) : 1);
  const double loads = tile.in_words    ? slices * tile.groups * (row_words(tile) * 16 + 8)
                       : by_words(tile) ? slices * tile.groups * row_words(tile) * 20
                                        : instructions * trips;
  const double shared = loads + instructions * products * tile.width / 4.0 + stage / 128 +
                        (turns_squares(tile) ? 2.0 * x_bytes(tile) / 128 : 0);
  const bool pixels = tile.channels_last && !tile.pairs;
  const double by_tap = by_planes(tile) ? (half ? kTapTable : kTapWords) * taps_of_thread(tile) : 0;
  const double row_words_dealt = (kRowWord * row_words(tile) + kRowTap * tile.instructions) *
                                 (1 + kRowStep * (p.stride_w - 1));
  const double numbers = p.swaps || p.rows_swap ? kFetchedSwapped : kFetchedHalf;
  const double fetch = tile.in_words ? slices * tile.groups * row_words_dealt
                       : by_words(tile)
                           ? slices * tile.groups * kFetchedRowWord * p.stride_w * row_words(tile)
                           : instructions * (tile.octets ? std::max(kFetchedOctets, trips)
                                             : pixels    ? kFetchedPixel
                                             : half      ? std::max(numbers, trips) + by_tap
                                                         : std::max(kFetchedWord, trips) + by_tap);
  const bool wide = tile.width == 256 && !tile.strict && (!half || p.y_blocks > 1);
  const double l2 =
      (copied_bytes(p, tile) + (p.brought ? p.y_bytes : 0) + (p.x_piece > 0 ? x_bytes(tile) : 0)) /
          (wide ? kL2Wide * kL2Bytes : kL2Bytes) +
      (short_rows(problem) && !p.odd_rows && !p.brought
           ? kShortLine * p.patch_lines * p.y_blocks * (tile.pairs ? p.columns : kPlaneChannels)
           : 0);
  double ask =
      kCopy * (std::ceil(double(odd_copies(p)) / p.askers) + (p.shifted ? p.x_residues : 0));
  if (by_planes(tile) && !p.tables_stay) ask += kListed * (8 + p.tables_bytes / 128);
  const bool of_two = by_planes(tile) && p.x_residues == 2;
  double help = p.shifted ? (of_two ? kShiftTwo : kShift) * tile.width : 0;
  if (p.x_piece > 0) help += kBringPiece * tile.width * 4 / p.x_piece;
  if (p.brought) {
    const double bring = linear(tile) ? kBringLast : kBring * p.y_blocks * kPlaneChannels;
    help += bring * std::ceil(p.patch_lines * p.line_pieces / 32.0);
    if (p.runs && p.pad_w > 0)
      help += kClear * p.patch_lines * (linear(tile) ? 1.0 / 8 : p.y_blocks);
  }
  // Of a block's taps, on average, those that the kernel does not have.
  const double missing =
      1 - double(p.kernel_h) * p.kernel_w / (double(p.units_h) * p.unit_h * p.units_w * p.unit_w);
  const double busiest = std::max({mma, shared, fetch, l2, ask, help});
  const double all = mma + shared + fetch + l2 + ask + help;
  return (busiest + kRest * (all - busiest)) *
         (tile.strict ? kStrict
          : p.apart   ? kApart
                      : 1) *
         (half && p.odd_rows && !by_planes(tile) && p.patch_lines > 1 ? kOddLines : 1) *
         (tile.instructions == 5 ? kFiveTaps : 1) *
         (!half && tile.width == 256 && !tile.channels_last && !p.odd_rows && !p.brought
              ? 1 - kMissing * missing
              : 1);
}

double predict(const Problem& problem, const Device& device, const FetchedWeightParams& p,
               FetchedWeightTile tile, double cycles) {
  const double blocks = double(combinations(p)) * p.split;
  const double tiles = std::ceil(double(k_tiles(p)) / p.split);
  const bool laid = !tile.channels_last && p.split > 1;
  const double stored = (laid ? kStoredPiece : kStored) * tile.width / 2 * tile.instructions;
  const double busy_us =
      std::ceil(blocks / device.sm_count) * (kBlock + stored + tiles * cycles) / kClock;
  const double partial = static_cast<double>(partial_bytes(problem, p.split));
  // A block's taps that lie side by side are stored together, unless channels lie there.
  const bool apart = p.split == 1 && problem.w_layout != Layout::nhwc;
  const int side_by_side = tile.channels_last ? 1
                           : p.unit_w == p.kernel_w
                               ? std::min(p.unit_w * p.unit_h, 32 / p.element_bytes)
                               : p.unit_w;
  const double scattered = apart ? 32 * weight_bytes(problem) / 4.0 / side_by_side : 0;
  const double memory_us =
      (read_bytes(problem) + partial) / (kMemoryRate * device.copy_bytes_per_us);
  const double lesser = std::min(busy_us, memory_us);
  const double beside_us = !tile.pairs || tile.channels_last ? kBeside * lesser
                           : problem.group_out() < kPlaneChannels
                               ? kBesidePairs * std::min(lesser, kMostBesidePairs)
                               : kBesideManyPairs * lesser;
  return kLaunch + std::max(busy_us, memory_us) + beside_us +
         (kPartialRate * partial + kScatteredRate * scattered) / device.copy_bytes_per_us;
}

// From so many output channels of a group on there are no pairs. In 16-bit NCHW, where all of dW is fewer cells of 64 than
// other tiles have, a block of pairs may be all channels.
int64_t most_pair_channels(const Problem& problem, FetchedWeightTile tile) {
  constexpr int kFewestCells = 4;
  const int64_t all =
      ceil_div(problem.group_out(), kPlaneChannels) * problem.h.kernel * problem.w.kernel;
  const bool half_planes = element_size(problem.dtype) == 2 && !tile.channels_last;
  return half_planes && all < kFewestCells ? int64_t{cells(tile)} * cell_channels(tile) + 1
                                           : kPlaneChannels;
}

// Blocks of dY x taps that come to `most` cells at most, each as even as their number allows.
std::vector<std::array<int, 3>> units(const Problem& problem, FetchedWeightTile tile) {
  const int most = cells(tile);
  const auto evenly = [](int64_t all, int64_t room) {
    return static_cast<int>(ceil_div(all, ceil_div(all, std::min(all, room))));
  };
  std::vector<std::array<int, 3>> found;
  if (tile.pairs) {
    const int64_t taps = cells(tile) * cell_channels(tile) / problem.group_out();
    for (int64_t columns = 1; columns <= std::min(taps, problem.w.kernel); ++columns) {
      const int unit_w = evenly(problem.w.kernel, columns);
      add_once(found, std::array{1, evenly(problem.h.kernel, taps / unit_w), unit_w});
    }
    return found;
  }
  for (int blocks = 1; blocks <= most; ++blocks) {
    const int y_blocks = evenly(ceil_div(problem.group_out(), cell_channels(tile)), blocks);
    for (int columns = 1; columns <= most / y_blocks; ++columns) {
      const int unit_w = evenly(problem.w.kernel, columns);
      const int unit_h = evenly(problem.h.kernel, most / y_blocks / unit_w);
      add_once(found, std::array{y_blocks, unit_h, unit_w});
    }
  }
  return found;
}

int stages_with_room(const Device& device, const FetchedWeightParams& p, FetchedWeightTile tile) {
  const int room = device.smem_optin - kFetchedStagesAt - kept_tables_bytes(p);
  return std::min(room / stage_bytes(p, tile), kMostFetchedStages);
}

// Every tile that fits, in no order: the same for all devices. `reason` says why there is none.
std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason) {
  std::vector<Candidate<Choice>> found;
  for (int row = 0; row < kFetchedWeightTileCount; ++row) {
    const FetchedWeightTile tile = kFetchedWeightTiles[row];
    if (tile.strict != is_strict(problem) ||
        tile.channels_last != (problem.x_layout == Layout::nhwc) ||
        tile.turned != (tile.channels_last && element_size(problem.dtype) == 2) ||
        tile.octets != (tile.turned && problem.group_out() % 8 == 0) ||
        (tile.pairs && problem.group_out() >= most_pair_channels(problem, tile)))
      continue;
    const bool odd =
        (!tile.channels_last || tile.pairs) &&
        !whole_rows(problem.w.out * (tile.channels_last ? problem.group_out() : 1), problem);
    const bool half = element_size(problem.dtype) == 2;
    const bool words_alone = row >= kFirstWordPlane && row < kFirstStrictPlane;
    const bool sparse =
        turns_squares(tile) && !tile.pairs && problem.w.stride > 1 && problem.w.stride <= kMostStep;
    if ((by_planes(tile) && !odd && !short_rows(problem)) || (row < kFirstPlane && !half) ||
        (words_alone && (half || problem.w.out >= kLongRow)))
      continue;
    for (const auto [y_blocks, unit_h, unit_w] : units(problem, tile))
      for (int way = by_planes(tile) ? 1 : 0; way < (by_planes(tile) ? 3
                                                     : odd || sparse ? 4
                                                                     : 2);
           ++way) {
        Choice choice{
            row, y_blocks, unit_h, unit_w, way % 2 != 0, odd && way >= 2, sparse && way >= 2, 2, 1};
        if (tile.pairs && choice.brought && problem.group_out() >= kPlaneChannels) continue;
        if (by_planes(tile))
          choice.runs = true, choice.brought = false, choice.whole_rows = way == 2;
        FetchedWeightParams p;
        if (std::string why = shape(problem, choice, p); !why.empty()) {
          reason = why;
          continue;
        }
        if (choice.apart && p.tap_copies * p.patch_pixels >= p.span) continue;  // more than all
        const int stages = stages_with_room(device, p, tile);
        if (stages < 2) {
          reason =
              "a K tile takes " + std::to_string(stage_bytes(p, tile)) + " bytes of shared memory";
          continue;
        }
        // Rows are longer then: only where as many stages have room (flownet_deconv2 TF32 with five for six took 101 us for 96,
        // yolov8l_proto fp16 with two for three 160 for 141).
        if (by_sectors(problem, choice)) {
          Choice longer = choice;
          longer.sectors = true;
          FetchedWeightParams of_longer;
          if (shape(problem, longer, of_longer).empty() &&
              stages_with_room(device, of_longer, tile) == stages)
            choice = longer, p = of_longer;
        }
        p.stages = choice.stages = stages;
        const int64_t combos = combinations(p), tiles = k_tiles(p);
        if (combos > INT32_MAX || tiles > INT32_MAX) {
          reason = "dW or x has too many tiles";
          continue;
        }
        const double cycles = tile_cycles(problem, p, tile);
        for (int split : splits_worth_trying(problem, combos, tiles, tile_pixels(p))) {
          p.split = choice.split = split;
          found.push_back({choice, predict(problem, device, p, tile, cycles)});
        }
      }
  }
  return found;
}

// A choice as a Plan, its time that on `device`; and back.
Plan plan_of(const Problem& problem, const Device& device, const Choice& c) {
  const FetchedWeightTile tile = kFetchedWeightTiles[c.row];
  FetchedWeightParams p;
  shape(problem, c, p);
  Plan plan =
      weight_sum_plan(problem, device, c.row, c.split,
                      predict(problem, device, p, tile, tile_cycles(problem, p, tile)), kLaunch);
  const int detail[] = {c.stages,  c.y_blocks, c.unit_h,      c.unit_w,     c.runs,
                        c.brought, c.apart,    p.taps_inside, c.whole_rows, c.sectors};
  std::copy(std::begin(detail), std::end(detail), plan.detail);
  plan.note = std::to_string(tile.pairs ? p.columns : c.y_blocks * cell_channels(tile)) + " x " +
              std::to_string(tile.width) + " channels, " + std::to_string(c.unit_h) + " x " +
              std::to_string(c.unit_w) + " taps, " + (tile.pairs ? "pairs, " : "") + "dY " +
              (c.brought         ? "brought and "
               : by_planes(tile) ? "by planes and "
               : c.apart         ? "by taps and "
                                 : "") +
              "fetched, " + (tile.in_words ? "in words, " : "") +
              (p.shifted       ? "x shifted, "
               : p.x_piece > 0 ? "x brought, "
                               : "") +
              (c.runs ? "runs" : "rows") + " of " +
              std::to_string(p.runs ? p.tile_pixels : tile_pixels(p)) + " pixels x " +
              std::to_string(c.stages) + " stages, split " + std::to_string(c.split) + ", " +
              std::to_string(combinations(p) * c.split) + " blocks";
  return plan;
}

std::string refusal(const Problem& problem, const Device&) {
  return problem.wide_index ? "a tensor has more than 2^31 elements" : "";
}

Choice choice_of(const Plan& plan) {
  const int32_t* d = plan.detail;
  return {plan.row,  d[1], d[2],       d[3], d[4] != 0, d[5] != 0,
          d[6] != 0, d[0], plan.split, d[7], d[8] != 0, d[9] != 0};
}

}  // namespace

std::vector<Plan> fetched_weight_plans(const Problem& problem, const Device& device,
                                       std::string& reason) {
  return all_plans(problem, device, reason, refusal, on_reference(candidates),
                   at_hand(device, plan_of));
}

Decision fetched_weight_plan(const Problem& problem, const Device& device) {
  return best_plan(problem, device, refusal, on_reference(candidates), at_hand(device, plan_of));
}

FetchedWeightParams fetched_weight_params(const Problem& problem, const Plan& plan,
                                          const Args& args) {
  FetchedWeightParams p;
  shape(problem, choice_of(plan), p);
  p.weight = args.w.data;
  p.y = args.y.data;
  p.x = args.x.data;
  // A warp stores the output channels of a tap at once; of few (fsrcnn_x2: 167 us for 135) sums go out one by one.
  constexpr int kLeastTogether = 16;
  p.together = (p.split > 1 ? p.columns >= kLeastTogether : problem.w_layout == Layout::nchw) &&
               !kFetchedWeightTiles[plan.row].channels_last;
  p.partials = p.split > 1 ? static_cast<float*>(args.workspace) : nullptr;
  for (int i = 0; i < 4; ++i) p.weight_stride[i] = static_cast<int32_t>(args.w.stride[i]);
  return p;
}

// Pixels of x are a K tile's rows; of dY, a block of output channels and the lines that they meet.
FetchedWeightMaps fetched_weight_maps(const FetchedWeightParams& p, int row, const Args& args) {
  const FetchedWeightTile tile = kFetchedWeightTiles[row];
  const int64_t size = p.element_bytes;
  const int64_t channels[] = {int64_t{p.groups} * p.rows, int64_t{p.groups} * p.columns};
  // Runs of a plane are one row of it.
  const int64_t x_h = p.runs ? 1 : p.x_h, x_w = p.runs ? int64_t{p.x_h} * p.x_w : p.x_w;
  TensorBox x, y;
  const auto planes = [&](const void* base, int64_t channels, int64_t h, int64_t w) {
    const int64_t row = w * size, plane = row * h;
    return TensorBox{base,
                     p.element_bytes,
                     4,
                     {w, h, channels, p.batch},
                     {size, row, plane, plane * channels},
                     {1, 1, 1, 1},
                     {1, 1, 1, 1}};
  };
  if (tile.channels_last) {
    // Channels of a square, pixels, rows, squares, images; or all channels, and a copy for each square.
    const auto squares = [&](const void* base, int64_t channels, int64_t h, int64_t w) {
      const int64_t pixel = channels * size, row = w * pixel;
      return p.whole_squares ? TensorBox{base,
                                         p.element_bytes,
                                         5,
                                         {kSquare, w, h, channels / kSquare, p.batch},
                                         {size, pixel, row, kKRow, row * h},
                                         {kSquare, 1, 1, 1, 1},
                                         {1, 1, 1, 1, 1}}
                             : TensorBox{base,
                                         p.element_bytes,
                                         4,
                                         {channels, w, h, p.batch},
                                         {size, pixel, row, row * h},
                                         {kSquare, 1, 1, 1},
                                         {1, 1, 1, 1}};
    };
    x = squares(args.x.data, channels[0], x_h, x_w);
    x.count[1] = tile_pixels(p);
    x.swizzled = tile.turned;
    if (tile.turned) x.count[0] = turned_row(tile) / 2;
    if (p.brought) return {encode(x), {}};
    if (tile.pairs) {
      // Numbers of a chunk, chunks, rows, images.
      const int32_t chunk = 1 << p.chunk_shift;
      const int64_t row = int64_t{p.y_w} * p.columns * size;
      y = {args.y.data,
           p.element_bytes,
           4,
           {chunk, row / chunk_bytes(p), p.y_h, p.batch},
           {size, chunk_bytes(p), row, row * p.y_h},
           {chunk, p.patch_pixels, 1, 1},
           {1, 1, 1, 1}};
      y.swizzled = tile.octets && chunk_bytes(p) > 16;
    } else {
      y = squares(args.y.data, channels[1], p.y_h, p.y_w);
      y.count[1] = p.patch_pixels;
      if (p.apart) y.step[1] = p.stride_w;
    }
    y.count[2] = p.patch_lines;
    y.step[2] = p.line_step;
    if (p.whole_squares) x.count[3] = tile.width / kSquare, y.count[3] = p.y_blocks;
  } else {
    // Channels lie between the lines of a patch.
    const auto channels_inside = [](TensorBox box, int64_t pixels, int32_t channels) {
      std::swap(box.extent[1], box.extent[2]);
      std::swap(box.stride[1], box.stride[2]);
      std::swap(box.count[1], box.count[2]);
      std::swap(box.step[1], box.step[2]);
      box.count[0] = static_cast<int32_t>(pixels);
      box.count[1] = channels;
      box.swizzled = false;
      return box;
    };
    // So many planes are one row.
    const auto rows_of_planes = [&](const void* base, int64_t channels, int32_t many,
                                    int64_t plane) {
      return planes(base, channels / many, 1, many * plane);
    };
    x = planes(args.x.data, channels[0], x_h, x_w);
    x.count[0] = tile_pixels(p);
    x.count[2] = tile.width;
    if (p.shifted)
      x = channels_inside(
          rows_of_planes(args.x.data, channels[0], p.x_residues, int64_t{p.x_h} * p.x_w),
          kShiftedRow / size, tile.width / p.x_residues);
    x.rounded = !tile.strict;
    if (p.brought) return {encode(x), {}};
    if (p.odd_rows) {
      y = rows_of_planes(args.y.data, channels[1], p.residues, int64_t{p.y_h} * p.y_w);
      if (by_planes(tile)) {  // two numbers of 16 bits are one, or a box had too few
        y.element_bytes = 4;
        y.extent[0] /= 4 / size;
        y.stride[0] = 4;
      }
    } else {
      y = planes(args.y.data, channels[1], p.y_h, p.y_w);
      y.count[1] = p.patch_lines;
      y.step[1] = p.line_step;
    }
    y = channels_inside(y, by_planes(tile) ? p.channel_bytes / 4 : p.patch_pixels,
                        tile.pairs ? p.columns : residue_channels(p));
  }
  x.rounded = !tile.strict;
  y.rounded = !tile.strict && size == 4;
  return {p.x_piece > 0 ? CUtensorMap{} : encode(x), encode(y)};
}

int64_t fetched_weight_blocks(const FetchedWeightParams& p) { return combinations(p) * p.split; }

}  // namespace convt2d::cuda::hopper
