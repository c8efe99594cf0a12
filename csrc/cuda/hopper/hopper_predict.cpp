#include "cuda/hopper/hopper_predict.h"

#include <algorithm>
#include <cmath>

#include "core/phases.h"
#include "cuda/gather_params.h"
#include "cuda/hopper/hopper_predict_planes.h"
#include "cuda/strict_sums.h"

namespace convt2d::cuda::hopper {
namespace {

// Cycles of one multiprocessor; fitted to 16000 plans of bench/layers.json on the H200 (kernel_bench sweep: fp16
// and tf32 in both layouts, strict fp32 in NCHW, forward and grad_input; 2026-11-22) by benchmarks/kernels/fit.sh;
// what is about the copy engine in NHWC again to 11700 plans, since two threads ask it; what is about fetched pixels
// again to two sweeps of NCHW grad_input (2026-11-23), since consumers multiply while they fetch.
constexpr double kClock = 1700;       // cycles a microsecond
constexpr double kLaunch = 5.79;      // us, empty kernel, tables, first loads, last stores
constexpr double kEight = 5;          // more, where columns are eight, in forward (2026-11-23)
constexpr double kPiece = 1910;       // a buffer handed over and back
constexpr double kBatch = 1980;       // a batch of loads on its way
constexpr double kParcel = 274;       // a parcel of each thread of a producer group
constexpr double kProduct = 149;      // beside the multiplications of a product
constexpr double kTurnedHalf = 58.4;  // of turned ones
constexpr double kTurnedRun = 286;    // of turned runs
constexpr double kFetchedNumber =
    1.17;  // multiplying with numbers of 32 bits that consumers fetch, over shared memory
constexpr double kWordsOf64 = 1.15, kBroughtOf64 = 1.7, kWordsOf128 = 1.0,
                 kWordsOf256 = 1.9;         // see fetched_words()
constexpr double kFetchedAgain = 1.25;      // few channels, for each of several column tiles
constexpr double kStrict = 3.18;            // strict fp32: three products, parts joined
constexpr double kStrictFill = 0.862;       // filling a buffer there, over TF32
constexpr double kStrictStalls = 0.748;     // as kStalls
constexpr double kStrictRows = 0.97;        // channel rows there, over pixel rows
constexpr double kStrictDepth = 0.15;       // the power of slices there, in grad_input
constexpr double kStrictFetched = 8.6;      // with fetched pixels there, by 1200 times (2026-11-23)
constexpr double kStrictFetchedWide = 7.1;  // the same of 128 columns
constexpr double kStrictBrought = 1.08;     // of rows that threads bring there
constexpr double kStrictFew = 1.33;         // 32 columns there whose pixels are not fetched
constexpr double kStrictSplit = 1.1;        // with weights split on their way (counted)
constexpr double kStrictOverlap = 0.7;      // as kOverlap, with three times as much to multiply
constexpr double kStaged = 6.28;         // a byte of a consumer thread's sum where rows are staged
constexpr double kHalves = 2.6;          // the same where 16-bit rows have odd places
constexpr double kSectorStored = 0.422;  // 32 bytes on their way to L2
constexpr double kRagged = 4.15;         // what the ends of a run add, in sectors
constexpr double kTile = 3100;           // tables of a tile, first product, last product
// 32 bytes of a phase without taps, of a block that does nothing else: 1.6 to 2.7 (k1s2 and k3s4_gaps of the off-list suite,
// all formats and layouts, whose phases without taps had one block each and took ten times what was thought, 2026-11-24).
constexpr double kEmptySector = 2.2;
constexpr double kOverlap = 0.293;        // how much of the lesser work hides behind the greatest
constexpr double kStalls = 0.768;         // what nothing above accounts for
constexpr double kPlanes = 1.08;          // 16-bit NCHW in grad_input
constexpr double kOdd = 1.68;             // an odd number of column phases in NCHW rows of pixels
constexpr double kTorn = 1;               // y once more where its pixels are no sectors
constexpr double kOddRowsTorn = 0.1;      // of it, where rows of 16 bits are odd
constexpr double kKept = 32 << 20;        // bytes that L2 keeps beside what is written
constexpr double kAgain = 0.03;           // of x for each reading more: decides between equals
constexpr double kEngine = 161;           // bytes a cycle of the copy engine
constexpr double kBroughtPiece = 110;     // 16 bytes that one of three warps' threads copies
constexpr double kBroughtMasked = 1.14;   // fetching what stands beside, over not
constexpr double kBroughtRounded = 2.4;   // TF32 that is rounded only now
constexpr double kTurnedRow = 228;        // 32 pixels of 16 bytes along K, in shared memory
constexpr double kUnderWay = 6010;        // from asking for a buffer to having it
constexpr double kEngineRow = 4.15;       // beside its bytes, a row of a pixel or of weights
constexpr double kEngineOverlap = 0.106;  // as kOverlap, with more and lighter consumers
constexpr double kOneGroup = 1.4;         // filling by one producer group, over two
constexpr double kTurnedAlone = 3.04;     // of turned weights: nobody loads while they are stored
constexpr double kTurnover =
    0.532;  // from one buffer to the next, where the copy engine fills them
constexpr double kFedTurnover = 0.925;   // where threads do
constexpr double kShallow = 1.02;        // two buffers of what the copy engine brings, over more
constexpr double kShallowAlone = 1.2;    // the same in grad_input where weights stay
constexpr double kWideColumns = 1.13;    // of copied columns, 128 over 64
constexpr double kEngineStalls = 0.579;  // as kStalls
constexpr double kFetchedStalls = 0.47;  // the same where consumers fetch pixels
// Rows of 16 bits over what is counted: 450 plans of 16 layers (2026-11-24). Of 64, 128 and 256 columns; where threads
// bring rows.
constexpr double kFetchedRows64 = 1.3, kFetchedRows128 = 1.14, kFetchedRows256 = 1.15,
                 kBroughtRows64 = 1.5, kBroughtRows = 1.35, kBroughtRows256 = 1.15;
// And of words that stand alike in all slices, and what is more where K is short, whose tiles store while nothing is multiplied;
// of rows that are spread, where a tile is some rows of a plane: 25 plans of eight layers (2026-11-29).
constexpr double kAlikeRows256 = 0.86, kAlikeFew = 77, kSpreadTorn = 1.15;
// Few channels, whose K is one chunk: ten plans of five layers, 1.15 to 1.54 (2026-11-25). And rows of 16 bits whose K is short:
// erfnet_up and fsrcnn_x2, 1.26 and 1.31 (2026-11-29).
constexpr double kFetchedFew = 1.25, kShortRows = 1.26;
constexpr int64_t kShortDepth = 160;
// Rows of 16 bits, counted (2026-11-24): an instruction takes what the tensor core does at the clock that its power leaves
// it, or what its words, the table and the weights take of shared memory; over both, what it waits.
constexpr double kTensorPower = 1.2, kNumberLoads = 32, kWordLoads = 16, kTableLoads = 4,
                 kFetchedWaits = 1.12;
// Lanes that meet where eight positions are of two rows (k4s2_small, rows of four: 47 us for 36).
constexpr double kHalvesRowEnd = 0.2;
constexpr double kFetchedOverlap = 0.85;  // as kOverlap
// Of storing pieces of sectors, what hides behind nothing: seven layers (2026-11-25).
constexpr double kPiecesAlone = 0.6;
constexpr double kFetchedL2 = 2;       // as kL2: what NHWC tiles get with the same operands
constexpr double kWordsL2 = 1.6;       // of words
constexpr double kNhwcStalls = 0.514;  // the same where it brings rows of channels
constexpr double kL2 = 1.3;            // bytes that L2 delivers, over what a copy moves
constexpr double kStepsL2 = 2.4;       // the same where a table of steps is walked in grad_input
constexpr double kBeside = 0.000872;   // of the lesser of work and bytes
constexpr double kWeights = 2.29;      // filling a buffer with weights, over one with pixels
// The least of many predictions errs on the low side: what chosen tiles of planes took over it (79 layers, 2026-11-26), for
// other families to compare with.
constexpr double kLeastOfHalves = 1.03, kLeastOfWords = 1.075;

// Tiles that walk a table of steps (hopper_copied.cuh): cycles of one multiprocessor, by counting (grad_input: 0.9 to 1.1
// of what 30 layers take above 50 us, 2026-11-23).
constexpr double kStepsLaunch =
    4.5;  // as kLaunch: who asks the copy engine starts at once (fetched: 1.3 to 2 us less, 2026-11-25)
constexpr double kStep = 420;          // 70 instructions of a warp, from product to product
constexpr double kSharedBytes = 128;   // a cycle, to the tensor core and from the copy engine
constexpr double kAsked = 1500;        // from asking for a buffer to its first byte
constexpr double kArriving = 50;       // bytes a cycle from there on
constexpr double kStepsRow = 2.1;      // of the copy engine, a row; by earlier fits, as
constexpr double kStepsByte = 0.0032;  // a byte
constexpr double kTurnOfTile =
    900;  // from the last product of a tile to the first one of the next, stores aside
constexpr double kStoring = 110;       // instructions of a warp that stores
constexpr double kLoneVector = 9;      // and for each 16 bytes of a thread
constexpr double kStepsSector = 0.16;  // as kSectorStored
constexpr double kTwinStore =
    0.3;                         // of storing, which does not hide behind the other block (counted)
constexpr double kHidden = 0.4;  // of what leads, by which storing takes less
constexpr double kStepsBeside = 0.02;   // of the lesser of what memory and L2 take
constexpr double kStepsOverlap = 0.95;  // as kOverlap
constexpr double kStepsNarrow = 1.2;    // rows of 64 bytes, where there could be twice as many
constexpr double kStepsFew = 9;         // and so few products read them (2026-11-23)
constexpr double kStepsBytes = 1.1;     // of memory and L2 with them, or with two buffers
constexpr double kStacked = 1.3;        // 256 columns of several phases, in forward (2026-11-23)

// The same of tiles whose weights are fetched (hopper_lent.cuh); by eight layers (2026-11-23).
constexpr double kLentProduct = 100;  // cycles beside the multiplications of a product
constexpr double kLentTwoSlots =
    300;  // where it may be of one of two slots; before halves of it were issued apart
constexpr double kLentSector = 2.5;   // 32 bytes on their way to L2
constexpr double kLentStalls = 0.88;  // as kStalls
constexpr double kLentArrival =
    1.3;  // what must be on its way when groups lead, over what has to be

// Tiles of channels-last forward whose outputs are runs of channels: cycles of one multiprocessor, fitted to plans of both suites
// on the H200 (2026-11-26).
constexpr double kForwardLaunch = 7.5;  // us
constexpr double kForwardTurned64 = 1.12;
constexpr double kForwardTurned128 = 1.1;
constexpr double kForwardTurned256 = 0.675;  // of instructions whose weights lie in columns
constexpr double kForwardPower = 0.95;       // of all instructions
constexpr double kForwardProduct = 38.3;     // beside the multiplications of a product
constexpr double kForwardHandover = 69.5;    // and of a buffer
constexpr double kForwardStacked =
    1.07;  // twice as many phases side by side, of 256 columns or weights that stream
constexpr double kForwardDealt = 1.15;  // up to 32 columns that are dealt
constexpr double kForwardStep = 284;    // from product to product of a group
constexpr double kForwardRow = 2.44;
constexpr double kForwardByte = 0.000828;  // of the copy engine
constexpr double kForwardAsked = 1500;
constexpr double kForwardBox = 472;         // asking for one of weights
constexpr double kForwardArriving = 46.1;   // as kAsked, kArriving
constexpr double kForwardL2 = 3.22;         // as kL2
constexpr double kForwardOverlap = 0.865;   // as kOverlap
constexpr double kForwardTurn = 750;        // as kTurnOfTile
constexpr double kForwardVector = 4.28;     // for each 16 bytes of a thread
constexpr double kForwardAlways = 194;      // and however few groups do
constexpr double kForwardSector = 0.00168;  // 32 bytes on their way to L2
constexpr double kForwardAlone = 1.38;      // of two teams: of storing, what hides behind nothing
constexpr double kForwardPrologue = 0.286;  // weights that threads bring
constexpr double kForwardWeights = 11400;   // and that the copy engine does
constexpr double kForwardBytes = 0.000101;  // of the lesser of work and bytes

// Cycles to fill a buffer, by one of two producer groups.
double fill_cycles(const Load& load) {
  const double of_thread = std::ceil(load.parcels / 128);
  return (kPiece + std::ceil(of_thread / load.batch) * kBatch + of_thread * load.each) / 2;
}

// The same by the copy engine: rows of so many bytes, or a buffer's share of the time that each is under way.
double copied_fill(double rows, double bytes, int stages) {
  return std::max(rows * (bytes / kEngine + kEngineRow), kUnderWay / std::max(stages, 1));
}

Load source_load(const GatherParams& p, bool half) {
  const double slices = p.slices, units = source_units(p);
  if (p.source_mode >= kTurned) return {std::ceil(units / 4) * 64 * slices, 8, kTurnedHalf};
  return {units * slices * (half && p.source_mode != kVectors ? 2 : 1), 6, kParcel};
}

Load weight_load(const GatherParams& p, TileRow tile, bool half) {
  const double slices = p.slices;
  if (p.weight_mode < kTurnedKernels)
    return {p.part_products * weight_rows(tile) * slices * (half ? 2 : 1), tile.copied ? 4.0 : 6.0,
            kParcel * kWeights};
  if (p.weight_mode == kTurnedRuns)
    return {std::ceil(p.tile_channels / 32.0) * 32 * p.taps * slices * 2, 8, kTurnedRun};
  const double units = p.kernel_taps ? 1 : p.part_products * stacked(p, tile);
  const double neighbours = p.tile_channels * std::max(p.kernel_taps, 1);
  return {std::ceil(neighbours / 32) * units * 64 * slices, 8, kTurnedHalf};
}

// How many products the phases of one group have.
double products_of(TileRow tile, const AxisGroup& h, const AxisGroup& w) {
  if (tile.fetched) return 1;
  if (!tile.channel_rows) return double(h.count) * w.count;
  double taps_h = 0, taps_w = 0;
  for (int i = 0; i < h.phases; ++i) taps_h += h.taps[i];
  for (int i = 0; i < w.phases; ++i) taps_w += w.taps[i];
  return taps_h * taps_w;
}

bool channels_last(const Problem& problem) {  // what is written
  const bool forward = problem.direction == Direction::fwd;
  return (forward ? problem.y_layout : problem.x_layout) == Layout::nhwc;
}

// Phases of other blocks between those of one, in a row of the result.
double scatter_of(const Problem& problem, const GatherParams& p) {
  return problem.direction == Direction::fwd ? std::min(4.0, double(problem.w.stride) / p.w.slots)
                                             : 1;
}

// The tiles of an axis whose patches lie in the source altogether, over all of them.
double share_inside(const AxisTable& axis, int tile, int tiles, int load) {
  const int step = tile * axis.source_step, low = axis.group[0].offset_low;
  const double first = std::ceil(std::max(0, -low) / double(step));
  const double last = std::floor((axis.source_extent - load - low) / double(step));
  return std::clamp(last - first + 1, 0.0, double(tiles)) / tiles;
}

// Filling a buffer with rows that threads bring.
double brought_fill(const GatherParams& p) {
  return std::max(std::ceil(double(p.brought_pieces) / kBringers) * kBroughtPiece,
                  kUnderWay / p.source_stages);
}
// Multiplying with them: consumers round TF32, and leave out what lies beside the source.
double brought_multiply(const GatherParams& p, bool rounded) {
  const double inside = tiles_inside(p);
  return (rounded ? kBroughtRounded : 1) * (inside + (1 - inside) * kBroughtMasked);
}

// An instruction of whose operands none is fetched.
double shared_cycles(TileRow tile) { return std::max(tile.width / 2.0, (64 + tile.width) / 4.0); }
// Rows of 16 bits: cycles of an instruction.
double fetched_halves(const GatherParams& p, TileRow tile) {
  const double ends = p.tile_w % kGroup == 0 ? 0 : std::min(1.0, (kGroup - 1.0) / p.tile_w),
               loads =
                   (p.in_words ? kWordLoads : kNumberLoads) * p.turns * (1 + kHalvesRowEnd * ends) +
                   kTableLoads,
               copied = double(p.patch_bytes) + (p.weight_stages ? p.part_bytes : 0),
               all = double(p.slices) * consumer_groups(tile) * tile.operands;
  return kFetchedWaits * std::max(kTensorPower * tile.width / 2,
                                  loads + tile.width / 4.0 + copied / (kSharedBytes * all));
}

// Words: what an instruction takes of shared memory and of the tensor core, over what it did where kFetchedNumber was fitted;
// by 500 plans of 45 layers (2026-11-26).
double fetched_words(const GatherParams& p, TileRow tile) {
  const double loads = kWordLoads * p.turns + (p.even_step ? 0 : 2 * kTableLoads),
               copied = double(p.patch_bytes) + (p.weight_stages ? p.part_bytes : 0),
               all = double(p.slices) * consumer_groups(tile) * tile.operands,
               taken = loads + tile.width / 4.0 + copied / (kSharedBytes * all);
  const double usual = tile.width == 64    ? (p.brought_pieces ? kBroughtOf64 : kWordsOf64)
                       : tile.width == 128 ? kWordsOf128
                                           : kWordsOf256;
  return taken / (tile.width / 2.0) / usual;
}

// Multiplying with numbers that consumers fetch one by one.
double fetched_multiply(const GatherParams& p, TileRow tile, bool half) {
  const double strict = (tile.width == 128 ? kStrictFetchedWide : kStrictFetched) *
                        (p.weight_stages ? kStrictSplit : 1) *
                        (p.brought_pieces ? kStrictBrought : 1);
  return (half          ? fetched_halves(p, tile) / kFetchedStalls / shared_cycles(tile)
          : tile.strict ? strict
                        : kFetchedNumber * fetched_words(p, tile)) *
         (p.brought_pieces ? brought_multiply(p, !half && !tile.strict) : 1) *
         (p.one_chunk && p.column_tiles > 1 ? kFetchedAgain : 1);
}

// Whether what follows is about a plan: threads that bring weights all the time, and outputs that go one by one, take
// longer than all of it. In forward it errs by what phases and a bias cost, and what is fitted above is better (2026-11-23).
bool counted(const Problem& problem, const GatherParams& p, TileRow tile) {
  if (tile.weights_fetched) return true;
  return problem.direction == Direction::grad_input && by_steps(tile) && p.store_mode != kSingles &&
         (!p.weight_stages || copied(p.weight_mode));
}

bool counted_words(const Problem& problem, TileRow tile) {
  return tile.fetched && !tile.strict && element_size(problem.dtype) == 4 &&
         !channels_last(problem);
}

bool counted_forward(const Problem& problem, const GatherParams& p, TileRow tile) {
  return problem.direction == Direction::fwd && by_steps(tile) &&
         element_size(problem.dtype) == 2 && p.store_mode != kSingles &&
         (!p.weight_stages || copied(p.weight_mode));
}

// Whether the rows that the copy engine brings could be twice as long.
bool narrow_rows(const GatherParams& p) {
  return chunk_bytes(p) < 128 && p.depth * p.element_bytes >= 128;
}

// From asking for a buffer to having it.
double arrival(double bytes) { return kAsked + bytes / kArriving; }
// Weights of a product.
double weight_bytes(const GatherParams& p, TileRow tile) {
  return double(weight_rows(tile)) * chunk_bytes(p);
}

// A chunk of a tile that walks a table of steps, of one of so many blocks that do the same: multiplying, reading and
// writing shared memory, issuing, and what must arrive meanwhile.
double steps_chunk(const GatherParams& p, TileRow tile, double products, double pieces,
                   double parts, int blocks) {
  const bool lent = tile.weights_fetched;
  const double operands = busy_groups(p, tile) * tile.operands, slices = p.slices,
               fetches = lent ? busy_groups(p, tile) : operands,
               part = p.part_products * weight_bytes(p, tile),
               weights = p.weight_stages ? products * weight_bytes(p, tile) : 0,
               row = tile.columns_copied ? column_row(p) : chunk_bytes(p);
  const auto arriving = [](double buffers, double bytes, int stages) {
    return buffers * arrival(bytes) / std::max(1, stages - 1);
  };
  const double work[] = {
      blocks * products *
          (slices * operands * tile.width / 2 +
           (lent ? (tile.slots > 1 ? kLentTwoSlots : kLentProduct) : 0)),
      blocks *
          (products * slices * (fetches * 64 + operands * tile.width) * kSliceBytes +
           pieces * p.patch_bytes + weights) /
          kSharedBytes,
      lent ? 0 : products * kStep,
      blocks * ((pieces * p.patch_pixels + weights / row) * kStepsRow +
                (pieces * p.patch_bytes + weights) * kStepsByte),
      arriving(pieces, p.patch_bytes, p.source_stages),
      p.weight_stages ? arriving(parts, part, p.weight_stages) : 0,
  };
  double greatest = 0, all = 0;
  for (double each : work) greatest = std::max(greatest, each), all += each;
  const bool waits = !lent && (products <= kStepsFew || (p.source_stages == 2 && !p.weight_stages));
  const double narrow = narrow_rows(p) && waits ? kStepsNarrow : 1;
  return narrow * (greatest + (1 - kStepsOverlap) * (all - greatest));
}

// And storing it, of which so many sectors are on their way to L2.
double steps_store(const Problem& problem, const GatherParams& p, TileRow tile, double sectors) {
  const double sums = tile.width / 2.0 * tile.operands,
               vectors = sums * element_size(problem.dtype) / 16;
  const double code = kStoring + vectors * kLoneVector;
  // Four schedulers have a warp of each group.
  return kTurnOfTile + std::max(busy_groups(p, tile) * code, sectors * kStepsSector);
}

// A tile of a team, of which all work on tiles of their own; or of the block.
TileCost forward_cost(const Problem& problem, const GatherParams& p, TileRow tile, double products,
                      double sectors, double read_sectors, double weight_fill) {
  const double pieces = std::min(products, double(p.planes_apart)), slices = p.slices,
               parts =
                   p.weight_stages ? pieces * std::ceil(products / pieces / p.part_products) : 0,
               groups = busy_groups(p, tile),
               weights = parts > 0 ? products * weight_bytes(p, tile) : 0,
               row = tile.columns_copied ? column_row(p) : chunk_bytes(p);
  const double turned = !tile.columns_copied || tile.width < 64 ? 1
                        : tile.width == 64                      ? kForwardTurned64
                        : tile.width == 128                     ? kForwardTurned128
                                                                : kForwardTurned256;
  const auto arriving = [&](double buffers, double bytes, int stages) {
    return buffers * (kForwardAsked + bytes / kForwardArriving) / std::max(1, stages - 1);
  };
  // What all teams share, and what each does for itself.
  const double shared[] = {
      products * (slices * groups * tile.operands * shared_cycles(tile) * turned * kForwardPower +
                  kForwardProduct) +
          (pieces + parts) * kForwardHandover,
      (pieces * p.patch_pixels + weights / row) * kForwardRow +
          (pieces * p.patch_bytes + weights) * kForwardByte};
  // Phases side by side are boxes of their own, and one thread asks for all of them.
  const double boxes =
      parts > 0
          ? products * stacked(p, tile) *
                (p.blocks_at_once
                     ? 1
                     : ceil_div(int64_t{p.tile_channels} * p.element_bytes, int64_t{column_row(p)}))
          : 0;
  const double own[] = {products * kForwardStep, boxes * kForwardBox,
                        arriving(pieces, p.patch_bytes, p.source_stages),
                        arriving(parts, p.part_products * weight_bytes(p, tile), p.weight_stages)};
  const auto together = [&](int teams) {
    double greatest = 0, all = 0;
    for (double each : shared) greatest = std::max(greatest, teams * each), all += teams * each;
    for (double each : own) greatest = std::max(greatest, each), all += each;
    return p.chunks * (greatest + (1 - kForwardOverlap) * (all - greatest));
  };
  const double vectors = tile.width / 2.0 * tile.operands * element_size(problem.dtype) / 16;
  const double store =
                   vectors * (groups * kForwardVector + kForwardAlways) + sectors * kForwardSector,
               all = !p.weight_stages && !copied(p.weight_mode)
                         ? 2 * p.chunks * weight_fill * kForwardPrologue
                     : !p.weight_stages
                         ? kForwardWeights + p.chunks * p.part_bytes / kForwardArriving
                         : 0;
  const double ways =
      (tile.width == 256 || p.weight_stages ? std::pow(kForwardStacked, std::log2(stacked(p, tile)))
                                            : 1) *
      (!tile.columns_copied && tile.width <= 32 ? kForwardDealt : 1);
  const double alone = ways * (together(1) + kForwardTurn + store);
  const double cycles =
      p.teams > 1 ? std::max(alone, ways * together(p.teams)) + kForwardAlone * store : alone;
  return {cycles, read_sectors, all, alone};
}

// Which buffers are filled: for bounds not those of weights, of which candidates have any number, or none, whatever a tile's positions.
enum class Filled { all, source, none };

TileCost tile_cost(const Problem& problem, const GatherParams& p, TileRow tile, double products,
                   Filled filled) {
  const bool forward = problem.direction == Direction::fwd;
  const double size = element_size(problem.dtype);
  const bool half = size == 2;
  const double slices = p.slices, k_slices = p.chunks * slices;
  // In forward all of them, by which it was fitted.
  // A group alone of four does not keep the tensor core busy.
  const int least = tile.fetched ? consumer_groups(tile) / 2 : 1,
            groups =
                forward ? consumer_groups(tile) / p.teams : std::max(least, busy_groups(p, tile));

  // Buffers of the source and of the weights that a chunk fills.
  const double pieces = std::min(products, double(p.planes_apart));
  // Of rows of channels it is known how many pixels all tiles have at least.
  const bool weights = filled == Filled::all, none = filled == Filled::none && !by_channel(tile);
  const double parts =
      p.weight_stages && weights ? pieces * std::ceil(products / pieces / p.part_products) : 0;
  // A wgmma takes as long as its multiplications, or as reading both operands, 128 bytes a cycle.
  const double multiply = shared_cycles(tile) * (tile.fetched  ? fetched_multiply(p, tile, half)
                                                 : tile.strict ? kStrict
                                                               : 1);
  const double mma =
      products * (k_slices * groups * tile.operands * multiply + p.chunks * kProduct) +
      p.chunks * (pieces + parts) * (tile.copied ? kTurnover : kFedTurnover);

  const double units = source_units(p);
  const double source_fill =
      none          ? 0
      : tile.turned ? p.tile_n * p.load_h * std::ceil(p.load_w / 32.0) * 2 * slices * kTurnedRow
      : p.brought_pieces ? brought_fill(p)
      : tile.fetched     ? copied_fill(p.patch_bytes / 128.0, 128, p.source_stages)
      : tile.copied      ? copied_fill(p.patch_pixels, chunk_bytes(p), p.source_stages)
                         : fill_cycles(source_load(p, half)) * (tile.strict ? kStrictFill : 1);
  const double weight_fill =
      !weights ? 0
      : copied(p.weight_mode)
          ? copied_fill(p.part_products * p.product_bytes / chunk_bytes(p), chunk_bytes(p),
                        p.weight_stages)
          : fill_cycles(weight_load(p, tile, half)) * (tile.copied ? kOneGroup : 1) *
                (tile.strict ? kStrictFill : 1) *
                (tile.turned && p.weight_mode >= kTurnedKernels ? kTurnedAlone : 1);
  const double row_bytes = p.load_w * (p.source_mode >= kTurned ? 16 : size);
  const double source_sectors = p.source_mode == kVectors ? units * k_slices
                                : tile.fetched            ? p.patch_bytes / 32.0 * p.chunks
                                : straight(tile) ? double(p.patch_pixels) * pieces * k_slices
                                                 : p.tile_n * p.load_h * (row_bytes / 32 + 0.6) *
                                                       k_slices * (kSliceBytes / size);
  // Weights lie with their taps side by side, of which a combination may use a part only.
  const double tap_sectors = problem.w_layout == Layout::nhwc || tile.fetched
                                 ? products
                                 : double(problem.h.kernel) * problem.w.kernel;
  const double weight_sectors =
      p.weight_stages && weights ? tap_sectors * weight_rows(tile) * k_slices : 0;
  const double produce =
      std::max(p.chunks * (pieces * source_fill + parts * weight_fill), weight_sectors);

  // Outputs that are neighbours in memory: a row of channel rows goes as pieces of 128 bytes; otherwise what
  // the lanes of a row or column hold: channels in NHWC, unless phases stand between them, or positions.
  const double sums = tile.width / 2.0 * tile.operands * tile.slots * groups / 2;  // of 256 threads
  const double staged_bytes = none ? 128 : (p.operand_columns ? 8 : p.tile_w) * tile.slots * size;
  // A stride of 5 or more that blocks cannot cut evenly: the phases of others lie between, nothing is aligned, and words
  // are often in two sectors.
  const bool broken =
      p.w.destination_step > kMaxSlots &&
      (p.w.slots == 1 ? !channels_last(problem) : p.w.destination_step % p.w.slots != 0);
  // What is fetched goes to memory as sixteen positions of a column, or as eight: pieces of sectors.
  const bool in_pieces =
      tile.fetched && !tile.strict && !channels_last(problem) && p.store_mode != kFours;
  const double run_bytes = p.store_mode == kFours                                 ? 16 * size
                           : in_pieces                                            ? 8 * size
                           : p.store_mode || (tile.channel_rows && !staged(tile)) ? 64
                           : broken                  ? size * p.w.slots / (half ? 1 : 2)
                           : tile.channel_rows       ? std::min(128.0, staged_bytes)
                           : !channels_last(problem) ? 8 * size * p.w.slots
                           : stacked(p, tile) == 1   ? 8 * size
                                                     : size;
  const double read = source_sectors + weight_sectors;
  if (of_planes(problem, tile)) {
    // Of an upright line neighbours in memory are one below the other, and so are phases.
    const bool upright = problem.w.out == 1 && !tile.channel_rows;
    return planes_cost(
        problem, p, tile,
        {products, pieces, parts, none ? Load{0, 1, 0} : source_load(p, half),
         weight_load(p, tile, half), upright ? 8 * size * p.h.slots : run_bytes,
         upright ? std::min(4.0, double(problem.h.stride) / p.h.slots) : scatter_of(problem, p),
         read});
  }
  // A phase without taps is nothing but stores, behind which nothing is multiplied.
  if (products == 0) return {kTile + sums * 256 * size / 32 * kEmptySector, 0, 0};
  const bool whole = !half || (forward ? problem.w.out : problem.w.in) % 2 == 0;
  // Staged rows pass through shared memory; other sums go straight to L2, which takes longer than the threads do.
  const double each = !staged(tile) ? 0 : kStaged * size * (whole ? 1 : kHalves);
  const double sectors =
      sums * 256 * size / 32 * (1 + kRagged * 32 / run_bytes) * scatter_of(problem, p);
  if (counted_forward(problem, p, tile))
    return forward_cost(problem, p, tile, products, sectors, read, weight_fill);
  if (counted(problem, p, tile)) {
    const double all = copied(p.weight_mode) ? kAsked + p.chunks * p.part_bytes / kArriving
                                             : 2 * p.chunks * weight_fill * kNhwcStalls;
    const double chunk = steps_chunk(p, tile, products, pieces, parts, 1),
                 store = tile.weights_fetched
                             ? kTurnOfTile + sums * 256 * size / 32 * kLentSector
                             : steps_store(problem, p, tile, sectors / scatter_of(problem, p));
    if (tile.twin) {
      const double alone = p.chunks * chunk + store,
                   both = p.chunks * steps_chunk(p, tile, products, pieces, parts, 2);
      return {std::max(alone, both) + kTwinStore * store, read, p.weight_stages ? 0 : 2 * all,
              alone};
    }
    return {p.chunks * chunk + store -
                kHidden * std::min(2 * store, p.lead * chunk / std::max(products, 1.0)),
            read, p.weight_stages ? 0 : all};
  }
  const double store = std::max(sums * each, sectors * kSectorStored);

  const double busiest = std::max({mma, produce, store});
  const double overlap = tile.strict && tile.fetched ? kStrictOverlap
                         : tile.fetched && half      ? kFetchedOverlap
                         : tile.copied               ? kEngineOverlap
                                                     : kOverlap;
  const bool two = straight(tile) && p.source_stages == 2;
  const double shallow = !two ? 1 : forward || p.weight_stages ? kShallow : kShallowAlone;
  const double wide = tile.columns_copied && tile.width == 128                    ? kWideColumns
                      : forward && tile.width == 256 && p.h.slots * p.w.slots > 1 ? kStacked
                                                                                  : 1;
  const double deep = tile.strict && !tile.fetched && !forward ? std::pow(slices, kStrictDepth) : 1;
  const double rows = tile.strict && tile.channel_rows                   ? kStrictRows
                      : tile.strict && !tile.fetched && tile.width == 32 ? kStrictFew
                                                                         : 1;
  return {shallow * wide * deep * rows *
              (busiest + (1 - overlap) * (mma + produce + store - busiest) +
               (in_pieces ? kPiecesAlone * store : 0)),
          read, p.weight_stages ? 0 : 2 * p.chunks * weight_fill};
}

// Blocks for each combination of a group of channels and phases, so that the grid fills its places on the device once: phases get them
// by their cost, where they are few, and have the same number otherwise.
void share_blocks(int places, const TileCost* costs, int64_t shares, GatherParams& p) {
  const int64_t tiles = tiles_of(p);
  p.shares = static_cast<int32_t>(shares);
  const int64_t others = combinations(p) / (shares > 1 ? shares : 1);
  int64_t blocks = std::max<int64_t>(1, places / others);
  double all = 0;
  for (int64_t s = 0; s < shares; ++s) all += costs[s].cycles;
  for (int64_t s = 0; s < shares; ++s) {
    const auto fair = static_cast<int64_t>(blocks * costs[s].cycles / all);
    p.walkers[s] = static_cast<int32_t>(std::clamp<int64_t>(fair, 1, tiles));
  }
  for (int64_t s = 0; s < shares; ++s) blocks -= p.walkers[s];
  const auto rounds = [&](int64_t s) {
    return ceil_div(tiles, int64_t{p.walkers[s]} * p.teams) * costs[s].cycles;
  };
  for (; blocks > 0; --blocks) {
    int64_t busiest = 0;
    for (int64_t s = 1; s < shares; ++s)
      if (rounds(s) > rounds(busiest)) busiest = s;
    if (p.walkers[busiest] == tiles) break;
    ++p.walkers[busiest];
  }
}

// Where weights are fetched: as many products as leave time for buffers to arrive, since those between both groups are read.
int lead_of_lent(const GatherParams& p, TileRow tile) {
  const double product = p.slices * consumer_groups(tile) * tile.operands * tile.width / 2;
  const auto leaves = [&](int stages, int products, double bytes) {
    return int((stages - 1) * products - kLentArrival * arrival(bytes) / product);
  };
  int lead = INT32_MAX;
  for (int i = 0; i < p.h.groups; ++i)
    for (int j = 0; j < p.w.groups; ++j) {
      const int products = int(products_of(tile, p.h.group[i], p.w.group[j]));
      if (products == 0) continue;
      lead = std::min(
          {lead, leaves(p.source_stages, products, p.patch_bytes), p.chunks * products / 2});
      if (p.weight_stages == 0) continue;
      // Of the last part of a chunk there may be one product.
      const int parts = int(ceil_div(products, p.part_products)), whole = products / parts;
      lead =
          std::min(lead, leaves(p.weight_stages, whole, p.part_products * weight_bytes(p, tile)));
    }
  return lead == INT32_MAX ? 0 : std::max(lead, 0);
}

}  // namespace

double tiles_inside(const GatherParams& p) {
  return share_inside(p.h, p.tile_h, p.tiles_h, p.load_h) *
         share_inside(p.w, p.tile_w, p.tiles_w, ceil_div(p.load_w, p.pixel_channels));
}

double over_for_others(const Problem& problem, TileRow tile) {
  if (!of_planes(problem, tile)) return 1;
  return element_size(problem.dtype) == 2 ? kLeastOfHalves : kLeastOfWords;
}

namespace {
// Words of 256 columns, of 16 bits, that stand alike in all slices.
double over_of_steps(const GatherParams& p) { return kAlikeRows256 + kAlikeFew / p.depth; }
}  // namespace

double over_of(const Problem& problem, TileRow tile, const GatherParams& p) {
  if (!tile.fetched || element_size(problem.dtype) != 2) return 1;
  const bool brought = p.brought_pieces > 0;
  if (tile.width == 64) return brought ? kBroughtRows64 : kFetchedRows64;
  if (tile.width == 128) return brought ? kBroughtRows : kFetchedRows128;
  if (!p.even_step) return brought ? kBroughtRows256 : kFetchedRows256;
  const bool torn = p.spread && p.tiles_h > 1;
  return over_of_steps(p) * (torn ? kSpreadTorn : 1);
}

namespace {

// What the tiles of each share of the blocks take.
struct Shares {
  TileCost cost[kMaxShares];
  int count;
  double products;  // of a combination, in the mean
};
Shares shares_of(const Problem& problem, const GatherParams& p, TileRow tile, Filled filled) {
  Shares all{};
  const double phase_groups = static_cast<double>(p.h.groups) * p.w.groups;
  const AxisTotals h = totals(p.h), w = totals(p.w);
  all.products =
      tile.fetched ? 1 : (tile.channel_rows ? h.taps * w.taps : h.steps * w.steps) / phase_groups;
  if (phase_groups > kMaxShares) {
    all.cost[all.count++] = tile_cost(problem, p, tile, all.products, filled);
    return all;
  }
  double products[kMaxShares];
  for (int i = 0; i < p.h.groups; ++i)
    for (int j = 0; j < p.w.groups; ++j) {
      const int s = all.count++;
      products[s] = products_of(tile, p.h.group[i], p.w.group[j]);
      const auto same = std::find(products, products + s, products[s]) - products;  // many are
      all.cost[s] = same < s ? all.cost[same] : tile_cost(problem, p, tile, products[s], filled);
    }
  return all;
}

// Whether a tile's cost has everything in it.
bool counted_apart(const Problem& problem, const GatherParams& p, TileRow tile) {
  return counted_forward(problem, p, tile) || of_planes(problem, tile) || counted(problem, p, tile);
}

// Microseconds, of so many waves of blocks of so many cycles, whose tiles read so many sectors.
double time_of(const Problem& problem, const Device& device, const GatherParams& p, TileRow tile,
               double products, double waves, double cycles, double read_sectors) {
  const bool forward = problem.direction == Direction::fwd;
  const double size = element_size(problem.dtype);
  const bool half = size == 2;
  const double phase_groups = static_cast<double>(p.h.groups) * p.w.groups;
  const bool of_forward = counted_forward(problem, p, tile), planes = of_planes(problem, tile),
             apart = counted_apart(problem, p, tile);
  const bool by_pixels = !tile.copied && p.source_mode != kVectors;
  // An odd number of phases side by side in NCHW goes to memory one number at a time.
  const bool odd =
      !tile.channel_rows && !channels_last(problem) && p.w.slots > 1 && p.w.slots % 2 == 1;
  const double slow = (half && by_pixels && !forward ? kPlanes : 1) * (odd ? kOdd : 1);
  const double busy_us = (tile.weights_fetched ? kLentStalls
                          : apart              ? 1
                          : by_channel(tile)   ? kNhwcStalls
                          : tile.fetched       ? kFetchedStalls
                          : tile.strict        ? kStrictStalls
                          : tile.copied        ? kEngineStalls
                                               : kStalls) *
                         slow * waves * cycles / kClock;

  // Pixels of a plane that no tap reads stay where they are.
  const double y_bytes =
      size * problem.batch * problem.out_channels * problem.h.out * problem.w.out;
  const double bytes = tensor_bytes(problem) -
                       (forward ? 0 : y_bytes * (1 - std::min(products / p.planes_apart, 1.0)));
  // Channels-last pixels of y that are no whole sectors are written in pieces (erfnet_out in TF32: 211 us for 113).
  const bool torn = forward && channels_last(problem) && int64_t(problem.group_out() * size) % 32;
  // So are rows of 16 bits that start in the middle of a word.
  const bool odd_rows = planes && half && problem.w.out % 2 != 0;
  // Blocks of other phases read x again, when L2 no longer has all of it (unet_up4 in TF32, two readings for one: 603 us for
  // 528; how much it takes was not fitted, kernelbench_2_5 had it for nothing).
  const double x_bytes = size * problem.batch * problem.in_channels * problem.h.in * problem.w.in;
  const double again = forward && channels_last(problem) && by_steps(tile) && x_bytes > kKept
                           ? kAgain * (phase_groups - 1) * x_bytes
                           : 0;
  const double memory_us = (bytes + (torn       ? kTorn
                                     : odd_rows ? kOddRowsTorn
                                                : 0) *
                                        y_bytes) /
                           (0.88 * device.copy_bytes_per_us);
  const bool steps = tile.weights_fetched || (!forward && by_steps(tile));
  // What goes to phases apart from each other is not as fast where only the rest was counted.
  const double scattered = bytes * scatter_of(problem, p),
               l2 = of_forward                     ? kForwardL2
                    : steps                        ? kStepsL2
                    : tile.fetched && size == 2    ? kFetchedL2
                    : tile.fetched && !tile.strict ? kWordsL2
                                                   : kL2,
               l2_us = (scattered / (steps && !forward ? kStepsL2 : kL2) + read_sectors * 32 / l2) /
                       device.copy_bytes_per_us;
  // Neither hides behind the other altogether; and of plans that move the same bytes the less busy one is better.
  const bool shallow = tile.fetched && size == 4 && p.source_stages == 2,
             slower = shallow || (steps && (narrow_rows(p) || p.source_stages == 2));
  const double bytes_us = (slower ? kStepsBytes : 1) * std::max(memory_us, l2_us) +
                          again / (0.88 * device.copy_bytes_per_us) +
                          (steps ? kStepsBeside * std::min(memory_us, l2_us) : 0);
  if (of_forward)
    return kForwardLaunch + std::max(busy_us, bytes_us) +
           kForwardBytes * std::min(busy_us, bytes_us);
  const double launch_us = (planes                       ? planes_launch(problem)
                            : asked_from_the_start(tile) ? kStepsLaunch
                                                         : kLaunch) +
                           (forward && tile.width == 8 ? kEight : 0);
  const bool short_rows = tile.fetched && size == 2 && int64_t{p.reduce} * p.taps <= kShortDepth;
  const double few =
      (tile.fetched && p.one_chunk ? kFetchedFew : 1) * (short_rows ? kShortRows : 1);
  return launch_us + few * (std::max(busy_us, bytes_us) + kBeside * std::min(busy_us, bytes_us));
}

}  // namespace

// Of the best shares, which it leaves in the parameters.
double predict(const Problem& problem, const Device& device, GatherParams& p, TileRow tile) {
  const int places = device.sm_count * blocks_together(tile);
  if (counted_words(problem, tile)) {
    const TileCost one = {1, 0, 0};
    share_blocks(places, &one, 1, p);
    return predict_words(problem, device, p, tile);
  }
  const Shares shares = shares_of(problem, p, tile, Filled::all);
  share_blocks(places, shares.cost, shares.count, p);

  const double combos = static_cast<double>(combinations(p));
  const double tiles = static_cast<double>(tiles_of(p));
  const double waves = std::ceil(blocks_of(p) / double(places));
  const bool apart = counted_apart(problem, p, tile);
  double cycles = 0, sectors = 0, prologue = 0;
  for (int s = 0; s < shares.count; ++s) {
    const TileCost& cost = shares.cost[s];
    // Of the last round, what is left may have the multiprocessors for itself.
    const double whole = p.teams == 1 && blocks_of(p) <= device.sm_count ? cost.alone : cost.cycles;
    const double walkers = double(p.walkers[s]) * p.teams, rounds = std::floor(tiles / walkers),
                 rest = tiles - rounds * walkers,
                 last = rest == 0             ? 0
                        : rest * 2 <= walkers ? cost.alone  // of teams, the other one has nothing
                                              : whole;
    cycles = std::max(cycles, rounds * whole + last + (apart ? 0 : (rounds + (rest > 0)) * kTile));
    sectors += cost.sectors / shares.count;
    prologue = std::max(prologue, cost.prologue);
  }
  return time_of(problem, device, p, tile, shares.products, waves, cycles + prologue,
                 combos * tiles * sectors);
}

namespace {

// Whether all blocks do the same, and one tile at a time.
bool alike(const GatherParams& p, TileRow tile) {
  const int phases = p.h.groups * p.w.groups;
  return (phases == 1 || phases > kMaxShares) && p.teams == 1 && !tile.twin;
}
// Blocks for each combination where all are.
double walkers_of(const Device& device, const GatherParams& p, TileRow tile) {
  return std::max(1.0, std::floor(device.sm_count * blocks_together(tile) /
                                  static_cast<double>(combinations(p))));
}

// Of predict(), what is there whatever the buffers of weights.
double bound(const Problem& problem, const Device& device, GatherParams& p, TileRow tile,
             Filled filled) {
  const double combos = static_cast<double>(combinations(p)),
               tiles = static_cast<double>(tiles_of(p)), walkers = walkers_of(device, p, tile),
               waves = std::ceil(combos * walkers / (device.sm_count * blocks_together(tile)));
  if (counted_words(problem, tile)) {
    p.shares = 1;
    p.walkers[0] = static_cast<int32_t>(walkers);
    return predict_words(problem, device, p, tile, true);
  }
  const Shares shares = shares_of(problem, p, tile, filled);
  const double beside = counted_apart(problem, p, tile) ? 0 : kTile;
  double cycles = 0, sectors = 0;
  for (int s = 0; s < shares.count; ++s) sectors += shares.cost[s].sectors / shares.count;
  if (filled == Filled::none && !by_channel(tile)) sectors = 0;
  if (alike(p, tile))
    return time_of(problem, device, p, tile, shares.products, waves,
                   std::ceil(tiles / walkers) * (shares.cost[0].alone + beside),
                   combos * tiles * sectors);
  // All that there is to do, shared out evenly; two tiles at a time take less than twice what one takes alone.
  const double together = std::max(p.teams, blocks_together(tile));
  for (int s = 0; s < shares.count; ++s)
    cycles += combos / shares.count * tiles / device.sm_count *
              (std::min(shares.cost[s].alone, shares.cost[s].cycles / together) + beside);
  // And no less than a tile, where that does not depend on its positions.
  for (int s = 0; s < shares.count && !by_channel(tile); ++s)
    cycles = std::max(cycles, shares.cost[s].alone + beside);
  return time_of(problem, device, p, tile, shares.products, 1, cycles, combos * tiles * sectors);
}

// Where threads may bring weights all the time, it is counted otherwise than where all stay: the lesser of both.
double bound_of_weights(const Problem& problem, const Device& device, GatherParams& p, TileRow tile,
                        Filled filled) {
  p.weight_stages = 0;
  double us = bound(problem, device, p, tile, filled);
  if (by_steps(tile) && !copied(p.whole_weight_mode)) {
    p.weight_stages = 2;
    us = std::min(us, bound(problem, device, p, tile, filled));
  }
  return us * over_of(problem, tile, p);
}

// Positions of a tile that take no longer than any others.
void set_least_positions(const Problem& problem, const Device& device, TileRow tile,
                         GatherParams& p) {
  const double positions =
      double(problem.batch) * double(position_extent(p.h)) * double(position_extent(p.w));
  double tiles = std::ceil(positions / (block_positions(tile) / p.teams));
  // As many as there are places, so that each is small; were there more rounds, these would be as much work and more beside it.
  const double walkers = walkers_of(device, p, tile);
  if (alike(p, tile)) tiles = std::ceil(tiles / walkers) * walkers;
  p.plane_pixels = p.patch_pixels = by_channel(tile) ? static_cast<int32_t>(positions / tiles) : 0;
  const int group = tile.operands * operand_positions(tile);
  p.tile_n = p.tile_h = 1;
  p.tile_w =
      may_rest(tile) ? std::max(1, int(positions / tiles / group)) * group : block_positions(tile);
  p.tiles_n = p.tiles_h = 1;
  p.tiles_w = static_cast<int32_t>(std::min<double>(tiles, INT32_MAX));
}

}  // namespace

double least(const Problem& problem, const Device& device, GatherParams& p, TileRow tile) {
  double us = INFINITY;
  set_least_positions(problem, device, tile, p);
  for (int shift = tile.weights_fetched; shift <= (p.one_chunk ? 0 : 2); ++shift) {
    set_least_buffers(shift, tile, p);
    // A table may be predicted to take less than steps.
    if (p.element_bytes == 2 && wide(tile) && over_of_steps(p) > kFetchedRows256) p.even_step = 0;
    us = std::min(us, bound_of_weights(problem, device, p, tile, Filled::none));
  }
  return us;
}

double least_of_depth(const Problem& problem, const Device& device, GatherParams& p, TileRow tile) {
  const int32_t lead = p.lead;
  p.source_stages = kMaxStages;
  p.lead = most_lead(tile);
  const double us = bound_of_weights(problem, device, p, tile, Filled::source);
  p.lead = lead;
  return us;
}

// How many products the first groups may lead by, by a simulation: each takes a buffer from those that are on their way,
// and hides storing for half the time of a product.
int lead_of(const Problem& problem, const GatherParams& p, TileRow tile) {
  if (tile.weights_fetched) return lead_of_lent(p, tile);
  if (p.teams > 1) return 0;
  constexpr int kStages = 4, kMoreStages = 6, kMostProducts = 32;
  const int stages = p.weight_stages ? std::min(p.source_stages, p.weight_stages) : p.source_stages,
            products = p.chunks * p.max_products;
  if (!counted(problem, p, tile) || tile.twin || stages < kStages || products > kMostProducts)
    return 0;
  return stages >= kMoreStages || products <= kStages ? 2 : 1;
}

}  // namespace convt2d::cuda::hopper
