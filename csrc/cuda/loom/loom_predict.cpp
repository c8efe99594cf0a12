// What a tile of loom takes, by counting and by what was measured.
#include <algorithm>
#include <vector>

#include "core/phases.h"
#include "cuda/gather_params.h"
#include "cuda/loom/loom_shape.h"
#include "cuda/strict_sums.h"
#include "cuda/walkers.h"

namespace convt2d::cuda::loom {
namespace {

constexpr double kClock = 1700;  // cycles a microsecond

// What things cost, in cycles where nothing else is said: counted by hand, and what is dated measured (2026-11-23).
constexpr double kLaunch = 7;         // us: tables, barriers, the first loads, the last stores
constexpr double kBanks = 128 * .85;  // bytes of shared memory a cycle
constexpr double kTensor = .76;       // of the tensor core's rate at that clock: a large matmul
constexpr double kInstructions = 4;   // a cycle
constexpr double kStep = 44;          // instructions of a warp for a step of one tap
constexpr double kTap = 12;           // of one more that is fetched with it
constexpr double kHalves =
    8;  // of a tap of 16 bits, whose weights are of two channels, above these
constexpr double kTurned = 26;       // for 32 pixels of a slice
constexpr double kTurnedAlone = 70;  // the same, cycles, of a warp that waits for what it loads
// grad_input in 16 bits, over what is counted, by 1477 times (2026-11-23): of a slice, and where positions step; and cycles of
// a tile.
constexpr double kHalvesInput = 1.4, kHalvesStepped = 1.15;
constexpr double kTileOfHalves = 6000;
constexpr double kTurnedEights = 16;  // the same in 16 bits
constexpr double kEightsAlone = 45;
constexpr double kBrought = 85;        // both, if these warps bring them too
constexpr double kBroughtAlone = 830;  // by kernelbench_1_57 and 2_5, grad_input (2026-11-23)
constexpr double kUnderWay = 1200;     // from asking for a patch to having it
constexpr double kBox = 30;            // to ask for a box
constexpr double kSegments = 0.5;  // of what the weights' bytes cost, where they come in segments
constexpr double kBoxed = 2500;    // of a tile whose outputs the copy engine stores, cycles;
constexpr double kBehind = 0.9;    // of its products of three taps, which do not wait for stores;
constexpr double kBoxesAlone = 7500;  // of a tile that does little else (kernelbench_2_2);
constexpr double kBoxedRate = 0.62;   // of the rate, where memory limits (kernelbench_2_2 584 us)
constexpr double kLeastRow = 64;      // bytes of a box's row, as which it counts
constexpr double kChunk = 60;         // barriers of a chunk
constexpr double kStart = 1500;       // of a block: until the first products are there
// Strict fp32, counted: instructions to split the weights of a tap and for two more products; to split 32 pixels of a slice;
// cycles of a batch in which its warpgroup multiplies nothing.
constexpr double kSplit = 22, kTurnedSplit = 28, kAlone = 300;
constexpr double kStored = 22;  // instructions of a warp for a pair of positions of a channel
constexpr double kLineWord =
    9;  // the same for 32 outputs that go by way of shared memory (2026-11-24, counted)
constexpr double kHidden = 0.5;   // of stores, behind the multiplications of the other group
constexpr double kL2Bytes = 24;   // a cycle, of a multiprocessor
constexpr double kShort = 4;      // for rows of 16 bytes (2026-11-23)
constexpr double kStepped = 1.6;  // where a step of positions is several pixels (2026-11-23)
constexpr double kParted =
    1.2;  // the same, of patches that come in parts; the rest is in over_of()
// grad_input in strict fp32, over what is counted, by 1560 times (2026-11-23): of a slice, with one phase, with two, where a
// step of positions is several pixels, by kernel rows, tap by tap, and where threads bring these; and cycles of a tile.
constexpr double kStrictOne = 0.87, kStrictTwo = 1.12, kStrictStepped = 0.8, kStrictTaps = 1.15,
                 kStrictBrought = 1.25;
constexpr double kStrictTileInput = 12000;
constexpr double kTwoStages = 1.1;  // of weights, over three, with two phases (2026-11-23)
// Bytes of weights of blocks that run at once: more than these L2 does not keep between tiles; if it does not, so many; and
// cycles between two blocks (2026-11-24, not measured).
constexpr double kHeld = 24e6, kHeldShared = 12e6, kBlockOfMany = 5000;
constexpr double kMemoryRate = 0.85;  // of the copy rate
constexpr double kByPhases =
    0.6;  // of that, where rows of the result are of several blocks (2026-11-23)
constexpr double kLesser = 0.1;  // of the lesser of work and bytes
constexpr double kTorn = 300;    // bytes, where tiles meet in a row of y that is no whole sectors

// Forward, by 2625 times of plans for 52 layers on an H200 (2026-11-24), in 16 bits, TF32 and strict fp32. Of the plans that
// were measured those chosen take 1.02 of the best one's time in the mean (before: 1.06, 1.06, 1.03), and are 1.09, 1.16 and 1.03
// times off what is predicted (before: 1.17, 1.24, 1.13). Found together: none of them is a cost by itself.
struct Forward {
  // Over what is counted of a slice, by phases: of taps of a kernel row at once, and tap by tap.
  double taps[2], single[2];
  // From asking for weights that come in turn to having them, cycles; and of what a chunk of them is multiplied in.
  double asked, held;
  double l2_bytes;   // a cycle, of a multiprocessor
  double long_rows;  // of weights of two phases that come tap by tap
  // Of what waits for a patch; of a slice, with one stage of them, with two of turned ones, by phases.
  double alone, one_stage, two_turned[2];
  double chunk;  // cycles
  // Of a tile, cycles, by phases: of what lanes have, of lines, of lines of rows that start anywhere; and for a row of lines.
  double tile[2], lined[2], anywhere[2], line;
  double by_phases,
      lines_by_phases;     // of the copy rate, where rows of the result are of several blocks
  double torn, torn_line;  // as kTorn, and where rows start anywhere
};
constexpr Forward kForward[] = {
    {{0.71, 0.81},
     {0.83, 0.96},
     2000,
     1.26,
     43,
     3.8,
     1,
     1.054,
     {1.084, 1.084},
     630,
     {9000, 6200},
     {4800, 4600},
     {1500, 1500},
     138,
     0.55,
     1,
     103,
     225},
    {{0.77, 0.86},
     {0.79, 1.46},
     3200,
     0.89,
     40,
     3.1,
     1.67,
     1.104,
     {1.054, 1},
     500,
     {6000, 5000},
     {1600, 4200},
     {3000, 2500},
     150,
     0.73,
     0.7,
     80,
     450},
    {{0.73, 1.07},
     {0.78, 1.03},
     3400,
     0.69,
     37,
     3.2,
     2.01,
     1,
     {1.043, 1.043},
     590,
     {4200, 2100},
     {1900, 1900},
     {4500, 1900},
     31,
     0.55,
     0.78,
     0,
     71},
};

// TF32, two phases, rows that start anywhere: over that (0.76 until hopper, which is slower there, predicted enough, 2026-11-26).
constexpr double kOddRows = 0.833;
// Laid weights, by 703 times of plans for 33 layers on an H200 (2026-11-24), in 16 bits and TF32: 1.13 and 1.09 times off in the
// mean. Found together, as above. Shared memory is what they wait for most, and laying them is much of a small layer. (What
// lanes store of two phases in 16 bits: 3600 for 4900, by erfnet_up, vqvae2_up and kernelbench_2_2, 2026-11-26.)
struct Laid {
  double banks, l2_bytes;  // of shared memory and of patches, a cycle
  double row;              // bytes of a copied row, over its pixels
  double turned;           // cycles of 96 pixels of a slice
  double under_way;        // from asking for a patch to having it
  double step, chunk;      // cycles, over the products: of a step of two phases
  // Of a warpgroup that stores a tile, by phases: what lanes have, and lines.
  double lanes[2], lines[2];
  double start, laid;           // cycles of a block; bytes that are laid in one
  double memory, lines_memory;  // of the copy rate
  // Of storing, a row of the tile, cycles: of lines, and of what lanes have in runs. Of a chunk, a row of the patch. (By both suites on an
  // H200, 2026-11-26; in 16 bits either half of the layers finds about the same.)
  double line_row, lane_row, patch_row;
};
constexpr Laid kLaid[] = {
    {90, 30, 78, 25, 660, 0, 100, {13600, 2720}, {3660, 7800}, 8500, 30, .8, .46, 60.8, 354, 9.34},
    {95,
     13.5,
     16,
     109,
     940,
     37,
     457,
     {12700, 2510},
     {4000, 5000},
     3000,
     25,
     .85,
     .85,
     100,
     198,
     9.35},
};
// Of the rate, where memory limits words (from_rgb 113 us for 86 on an H200, 140 for 118 on an H100).
constexpr double kLaidWords = .76;
// Two turned stages over more; columns of words, of one phase or where rows start anywhere; of a tile's stores what products of
// the other one do not hide.
constexpr double kLaidTwo = 1.04, kLaidColumns = 1.25, kLaidShown = .03;
// Chunks of 64 channels over those of fewer, 16 bits (a chunk itself took 640 cycles before: 33 layers on an H200, 2026-11-30).
constexpr double kLaidDeep = 1.1;

const Laid& laid_of(const GatherParams& p) { return kLaid[p.element_bytes == 2 ? 0 : 1]; }

const Forward& forward_of(const GatherParams& p) {
  return kForward[p.element_bytes == 2 ? 0 : p.strict ? 2 : 1];
}

double strict_rate(const GatherParams& p, Tile tile) {
  if (p.steps_w == 1 || p.parts > 1) return tile.phases == 2 ? kStrictTwo : kStrictOne;
  return p.brought ? kStrictBrought : tile.taps == 1 ? kStrictTaps : kStrictStepped;
}

// A tile of laid weights, or of one warpgroup, in steady state: while one multiplies the other stores.
double laid_cycles(const GatherParams& p, Tile tile, int group, bool at_least) {
  const Laid& fit = laid_of(p);
  const int first = group * p.row_phases;
  double all = 0, most = 0;
  for (int run = first; run < first + (p.halved ? 1 : p.row_phases); ++run) {
    const double steps = p.first_step[run + 1] - p.first_step[run];
    all += steps;
    most = std::max(most, steps);
  }
  if (p.row_phases == 1 && !p.own_tiles) all *= kGroups;  // sets
  const bool halves = p.element_bytes == 2;
  const double width = positions(tile), turned_bytes = double(p.row_sets) * p.items * kSliceBytes,
               x_bytes = double(p.tile_n) * p.copied_h * (halves ? 1 : p.row_sets) *
                         slice_of(p.element_bytes) * (p.copied_w * p.element_bytes + fit.row),
               patch = x_bytes / fit.l2_bytes,
               turned = p.row_sets * ceil_div(p.items, 32 * kTurners) *
                        (p.brought ? kBroughtAlone : fit.turned);
  // A stage is asked for again when it was turned.
  const double waits =
      p.brought || at_least ? 0 : (fit.under_way / p.slices + patch + turned) / p.x_stages;
  const double over =
      (p.turned_stages == 2 && !at_least ? kLaidTwo : 1) *
      (!halves && p.layout != kRuns && (tile.phases == 1 || starts_anywhere(p, tile)) ? kLaidColumns
                                                                                      : 1) *
      (halves && p.slices > 2 && !at_least ? kLaidDeep : 1);
  const auto products = [&](double steps) {
    const double tensor = steps * (width / 2 + (tile.phases == 2 ? fit.step : 0)),
                 banks = (steps * (width * kSliceBytes + kMatrix) + x_bytes + 2 * turned_bytes) /
                         fit.banks;
    return p.chunks *
           (p.slices * std::max({tensor, banks, patch, turned, waits}) + fit.chunk +
            double(p.tile_n) * p.copied_h * fit.patch_row) *
           over;
  };
  const double rows = double(p.tile_n) * p.tile_h;
  const bool runs = p.layout == kRuns;
  const double lines = fit.lines[tile.phases - 1] + rows * fit.line_row,
               lanes = fit.lanes[tile.phases - 1] + (runs ? rows * fit.lane_row : 0);
  const double store = at_least  ? std::min({lines, lanes, kBoxed})
                       : p.boxed ? kBoxed
                       : p.lined ? lines
                                 : lanes;
  if (p.own_tiles)
    return std::max(products(all), (products(all) + store) / kGroups) + kLaidShown * store;
  return std::max(products(all), products(most) + store);
}

// A tile whose phases are those of a group.
double tile_cycles(const GatherParams& p, Tile tile, int group, bool at_least) {
  if (tile.laid) return laid_cycles(p, tile, group, at_least);
  // Steps of both warpgroups.
  const int runs = p.row_phases * p.parts, first = group * runs, warpgroups = kGroups;
  const double steps = double(warpgroups) / p.row_phases *
                       (p.first_step[first + runs] - p.first_step[first]),
               taps = steps * tile.taps, width = positions(tile);
  // Of swizzled segments lanes read every second 8 bytes.
  const int met = at_least          ? 1
                  : p.segment_bytes ? 2
                  : p.woven ? 1
                            : most_in_a_bank(unit_bytes(tile, p), p.row_pitch, p.number_pitch),
            products = tile.strict ? 3 : 1, split = tile.strict ? kTurnedSplit : 0;
  const double weight_bytes = p.resident || at_least ? 0 : double(p.weight_bytes) / p.slices,
               turned_bytes = double(p.parts * p.row_sets) * p.items * kSliceBytes;
  // Rows end inside sectors.
  const bool halves = p.element_bytes == 2;
  const bool words = !halves && !p.brought;
  const double x_bytes = p.tile_n * double(words ? p.parts * p.copied_h * p.row_sets : p.copied_h) *
                         slice_of(p.element_bytes) *
                         std::max(p.copied_w * p.element_bytes + 16., halves ? kLeastRow : 0);
  // 16 bits are loaded by as many loads as words, if they are, or by some more than half of these.
  const double loads = !halves ? 1 : tile.taps == 1 ? 2 : tile.taps == 3 ? 4. / 3 : 1;
  // Of a slice.
  const double tensor = taps * products * width / 2 / kTensor;
  const double banks = (taps * kSliceBytes * (products * width + kRows * loads * met) +
                        weight_bytes + x_bytes + (tile.strict ? 3 : 2) * turned_bytes) /
                       kBanks;
  const double turns = p.parts * p.row_sets * ceil_div(p.items, 32);
  // Of strict fp32 also sums that are joined: batches of a warpgroup.
  const double batches =
      tile.strict ? ceil_div(steps / warpgroups * p.slices, batch_steps(tile)) / double(p.slices)
                  : 0;
  const double issued =
      (4 * (steps * (kStep + (tile.taps - 1) * kTap + (halves ? tile.taps * kHalves : 0)) +
            (tile.strict ? taps * kSplit + kGroups * batches * kStrictColumns / 2 : 0)) +
       turns * ((p.brought ? kBrought
                 : halves  ? kTurnedEights
                           : kTurned) +
                split)) /
      kInstructions;
  const double turned = p.parts * p.row_sets * ceil_div(p.items, 32 * kTurners) *
                        ((p.brought ? kBroughtAlone
                          : halves  ? kEightsAlone
                                    : kTurnedAlone) +
                         split);
  // A warpgroup's products, where it waits for them before it has others.
  const double waited = tile.strict && tile.phases == 1 ? tensor / kGroups + batches * kAlone : 0;
  // Of a patch, what lies in the source.
  const double wide = std::min<double>(p.copied_w, p.w.source_extent) / p.copied_w,
               high =
                   std::min<double>(p.parts * p.load_h, p.h.source_extent) / (p.parts * p.load_h);
  const double patch = x_bytes * wide * high / kL2Bytes;
  const double brought = patch + weight_bytes * (p.own_rows ? kShort : 1) / kL2Bytes;
  // Where a patch is turned before the next one is asked for; of many stages, where one is before it is used again.
  const double alone =
      at_least ? 0
      : p.parts * p.row_sets > 1
          ? (double(p.parts * p.row_sets) * kUnderWay / p.slices + patch + turned) / p.x_stages
      : p.brought || p.x_stages > 1 ? 0
                                    : kUnderWay / p.slices + turned + (halves ? patch : 0);
  const double stepped = p.steps_w == 1 || halves ? 1 : p.parts > 1 ? kParted : kStepped;
  const double waiting =
      !at_least && !p.resident && p.weight_stages == 2 && tile.phases == 2 ? kTwoStages : 1;
  const double asked =
      double(p.lines) * (words ? p.parts * p.row_sets : p.load_h) * kBox / p.slices;
  const double computed = std::max({tensor, banks, issued, turned, waited}),
               waits = std::max({brought, alone, asked});
  const double counted = tile.strict ? strict_rate(p, tile) : stepped;
  const double over = !halves ? 1 : p.steps_w == 1 ? kHalvesInput : kHalvesStepped;
  const double slice = std::max(computed * counted, waits * stepped) * waiting * over;
  const double pairs = warpgroups * 4 * width / kEight * 2;
  const bool anywhere = starts_anywhere(p, tile);
  if (p.forward) {
    const Forward& fit = forward_of(p);
    const int phases = tile.phases - 1;
    const double work = computed * (tile.taps > 1 ? fit.taps : fit.single)[phases],
                 weights = weight_bytes *
                           (p.own_rows        ? kShort
                            : p.segment_bytes ? kSegments
                                              : 1) *
                           (tile.taps == 1 && tile.phases == 2 ? fit.long_rows : 1);
    // A stage of weights is asked for when its last ones were multiplied.
    const double in_turn =
        p.resident || at_least ? 0 : (fit.asked / p.slices + fit.held * work) / p.weight_stages;
    const double longest = std::max({work, (patch * kL2Bytes + weights) / fit.l2_bytes,
                                     alone * fit.alone, asked, in_turn}) *
                           (p.x_stages == 1 && !p.brought && !at_least ? fit.one_stage : 1) *
                           (p.turned_stages == 2 && !at_least ? fit.two_turned[phases] : 1);
    const double shown = anywhere ? 1 : 1 - kHidden;
    const double stored = p.lined ? shown * pairs * 2 * tile.phases * kLineWord / kInstructions +
                                        p.tile_n * p.tile_h * fit.line
                                  : shown * pairs * kStored / kInstructions;
    if (at_least)
      return p.chunks * (p.slices * longest + fit.chunk) * (tile.taps == 3 ? kBehind : 1);
    const double hidden = p.boxed && tile.taps == 3 ? kBehind : 1;
    const double cycles = p.chunks * (p.slices * longest + fit.chunk) * hidden + stored +
                          (p.boxed    ? kBoxed
                           : anywhere ? fit.anywhere[phases]
                           : p.lined  ? fit.lined[phases]
                                      : fit.tile[phases]);
    return p.boxed ? std::max(cycles, kBoxesAlone) : cycles;
  }
  const double store = (anywhere ? 2 : 1) * (1 - kHidden) * pairs * kStored / kInstructions;
  const double more = tile.strict ? kStrictTileInput : halves ? kTileOfHalves : 0;
  return p.chunks * (p.slices * slice + p.parts * kChunk) + store + more;
}

// Weights that stream come from L2 again for each tile, unless those of all blocks that run are more than it holds: then every
// combination gets more blocks, and those of few combinations run at once (ncu, stylegan2_mid: 1.4 GB from memory for 0.1).
void share_weights(const Device& device, double cycles, GatherParams& p) {
  const int64_t combos = combinations(p), tiles = tiles_of(p);
  p.walkers_first = 0;
  const double bytes = double(p.reduce) * p.tile_channels * p.taps * p.element_bytes;
  if (p.resident || p.h.groups > 1 || bytes * std::min<double>(combos, device.sm_count) <= kHeld)
    return;
  double best = 0;
  int64_t next = 1;
  for (int64_t walkers = 1; walkers <= tiles; walkers = next) {
    next = walkers + 1;
    if (bytes * ceil_div(device.sm_count, walkers) > kHeldShared && walkers < tiles) continue;
    const int64_t rounds = ceil_div(tiles, walkers);
    const double took =
        ceil_div(combos * walkers, device.sm_count) * (kBlockOfMany + rounds * cycles);
    if (rounds > 1) next = ceil_div(tiles, rounds - 1);  // more with as many rounds take no less
    if (best > 0 && took >= best) continue;
    best = took;
    p.walkers[0] = static_cast<int32_t>(walkers);
    p.walkers_first = 1;
  }
}

// Tiles whose rows are shorter than what memory moves at once, bytes (grad_input in TF32, long rows; six layers on an H200,
// 2026-11-26: 1.02 to 1.29 times what rows twice as wide take).
constexpr int kMemoryLine = 64;
constexpr double kNarrow = 1.05;

// Woven weights, whose lines come faster than others (seven layers on an H200, 2026-11-26).
constexpr double kWoven = 0.92;

// Of grad_input in TF32, over the rest: tiles whose outputs are laid out as lines, of which stores take less than what lanes have
// (150 of 2200 times of 60 layers on an H200, 2026-11-26).
constexpr double kLined = 0.82, kLinedSteps = 0.75;

// Strict fp32 since what a warp has alike is in uniform registers, over what was measured before (79 layers on an H200,
// 2026-11-28): forward, by phases, and grad_input.
constexpr double kStrictUniform[] = {0.96, 0.89}, kStrictUniformInput = 0.943;

// What plans took over what is counted (H200, 2026-11-24): grad_input of 32-bit words, by the taps of a part (60 layers and modes).
double over_of(const GatherParams& p) {
  if (p.laid) return 1;
  if (p.forward && p.strict && p.lines) return 1.3;
  if (p.forward || p.element_bytes == 2) return 1;
  if (!p.strict && p.taps == 1) return 1.6;  // k1s1_c320, 70 to 82 us (2026-11-26)
  const bool two_rows = p.row_phases > 1 && p.steps_w == 1;
  const double laid_out = !p.lined || two_rows            ? 1
                          : p.steps_w > 1 && p.parts == 1 ? kLinedSteps
                                                          : kLined;
  if (p.parts == 1) {
    if (p.steps_w > 1) return !p.strict ? 1.1 * laid_out : p.lines ? 1.25 : 0.95;
    return !p.lines ? 1 : p.strict ? 0.88 : 1.17 * laid_out;
  }
  const int taps = p.taps / p.parts;
  if (p.strict) return taps <= 5 ? 1.4 : 1.08;
  return (taps <= 5 ? 1.45 : 1.1) * laid_out;
}

}  // namespace

namespace {

double time_of(const Problem& problem, const Device& device, Tile tile, const GatherParams& p,
               double busy_us, bool at_least) {
  const Forward& fit = forward_of(p);
  const bool anywhere = starts_anywhere(p, tile);
  const double rate = kMemoryRate * (p.h.groups == 1 ? 1
                                     : !p.forward    ? kByPhases
                                     : anywhere      ? fit.lines_by_phases
                                                     : fit.by_phases);
  double memory_us = tensor_bytes(problem) /
                     (rate * (p.boxed && !at_least ? kBoxedRate : 1) * device.copy_bytes_per_us);
  if (p.laid) {
    const double lanes = laid_of(p).memory * (p.h.groups == 1 ? 1 : kByPhases);
    memory_us = tensor_bytes(problem) / ((at_least  ? std::max(laid_of(p).lines_memory, lanes)
                                          : p.lined ? laid_of(p).lines_memory
                                          : p.boxed ? lanes * kBoxedRate
                                                    : lanes) *
                                         device.copy_bytes_per_us);
    if (p.element_bytes == 4 && memory_us > busy_us && !at_least) memory_us /= kLaidWords;
  }
  const double rows = double(problem.batch) * p.columns * p.groups * p.h.destination_extent;
  const double torn_bytes = !torn(p, tile) ? 0
                            : !p.forward   ? kTorn
                            : anywhere     ? fit.torn_line
                                           : fit.torn;
  double torn_us = torn_bytes * rows * p.tiles_w / device.copy_bytes_per_us;
  if (p.laid) torn_us = 0;  // is in the rates
  double us =
      kLaunch + std::max(busy_us, memory_us) + kLesser * std::min(busy_us, memory_us) + torn_us;
  us *= over_of(p);
  if ((p.woven || (at_least && p.own_rows)) && !anywhere) us *= kWoven;
  if (!p.forward && p.element_bytes == 4 && !p.strict && p.tile_w < p.w.destination_extent &&
      p.tile_w * p.element_bytes < kMemoryLine)
    us *= kNarrow;
  // The same for all plans.
  const bool odd = p.w.destination_extent % (2 * tile.phases) != 0;
  if (p.forward && odd && tile.phases == 2 && p.element_bytes == 4 && !p.strict && !p.laid)
    us *= kOddRows;
  if (p.strict) us *= p.forward ? kStrictUniform[tile.phases - 1] : kStrictUniformInput;
  return us;
}

}  // namespace

double predict(const Problem& problem, const Device& device, Tile tile, GatherParams& p) {
  std::vector<double> cycles;
  for (int g = 0; g < p.h.groups; ++g) cycles.push_back(tile_cycles(p, tile, g, false));
  set_walkers(device, cycles, p);
  share_weights(device, cycles[0], p);
  const Forward& fit = forward_of(p);
  const double combos = double(combinations(p)) / p.h.groups;
  double longest = 0, all = 0;
  for (int g = 0; g < p.h.groups; ++g) {
    const double once =
        p.laid ? laid_of(p).start + p.all_weights / laid_of(p).laid
               : kStart + (!p.resident ? 0 : p.all_weights / (p.forward ? fit.l2_bytes : kL2Bytes));
    const double block =
        p.rounds * (once + ceil_div(ceil_div(tiles_of(p), p.rounds), p.walkers[g]) * cycles[g]);
    longest = std::max(longest, block);
    all += block * p.walkers[g] * combos;
  }
  return time_of(problem, device, tile, p, std::max(longest, all / device.sm_count) / kClock,
                 false);
}

double least(const Problem& problem, const Device& device, Tile tile, const GatherParams& p) {
  const double start = p.laid ? laid_of(p).start : kStart;
  double longest = 0, all = 0;
  for (int g = 0; g < p.h.groups; ++g) {
    const double cycles = tile_cycles(p, tile, g, true);
    longest = std::max(longest, start + cycles);
    all += cycles;
  }
  // Shared out evenly.
  all *= double(combinations(p)) / p.h.groups * double(tiles_of(p)) / device.sm_count;
  return time_of(problem, device, tile, p, std::max(longest, all) / kClock, true);
}

}  // namespace convt2d::cuda::loom
