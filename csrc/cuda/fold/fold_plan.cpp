#include "cuda/fold/fold_plan.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "core/phases.h"
#include "cuda/gather_params.h"
#include "cuda/strict_sums.h"
#include "cuda/tensor_map.h"

namespace convt2d::cuda::fold {
namespace {

// What things cost, in cycles where nothing else is said.
struct Costs {
  double launch;  // us
  double block;   // beside its items
  double item;    // beside its tiles
  double tile;
  double multiply;     // times what the tensor core takes for one product
  double stored;       // of 32 products, on their way to shared memory
  double spot;         // of a warp's part of two rows of y
  double tap;          // of a tap of it
  double flat;         // of 32 products that are outputs
  double region;       // of words that are turned
  double shallow;      // of turning and copying that two stages leave in sight
  double l2_bytes;     // a cycle
  double wait;         // of the lesser of multiplying and copying that is not hidden
  double resident;     // of a byte of weights that stay
  double memory_rate;  // of the copy rate
  double beside;       // of the lesser of work and bytes
};
constexpr double kClock = 1700;       // cycles a microsecond
constexpr double kMostWaited = 4096;  // cycles of multiplying of which some are not hidden

// Fitted to times on the H200 (kernel_bench sweep, of bench/layers.json; 16 bits also of 48 random layers; 2026-11-22).
constexpr Costs kHalves = {7.49, 5720, 586, 490,  1,     3.92, 8.15,  2.6,
                           0,    0,    0,   31.6, 0.337, 0.35, 0.632, 0.16};
constexpr Costs kWords = {9.26, 8590, 272,   158,  1.25,  5.92, 23.6,  0.921,
                          4.32, 35.7, 0.346, 32.5, 0.254, 0.24, 0.853, 0};
constexpr Costs kStrict = {7.46, 5000, 0, 0,    3.09, 5.37,  20.2, 1.25,
                           0,    57,   0, 48.6, 0.86, 0.233, 0.75, 0.332};

// Of shifted tiles what shifts is taken to cost what turns words: they took 1.2 to 1.5 times that.
constexpr Costs kShifted = {kHalves.launch, kHalves.block,    kHalves.item,
                            kHalves.tile,   kHalves.multiply, kHalves.stored,
                            kHalves.spot,   kHalves.tap,      0,
                            kWords.region,  kWords.shallow,   kHalves.l2_bytes,
                            kHalves.wait,   kHalves.resident, kHalves.memory_rate,
                            kHalves.beside};

// Flat tiles of 16 bits: counted, and fitted to 420 plans of eleven layers (H200, 2026-11-26).
constexpr double kFlatLaunch = 5.7;       // us
constexpr double kFlatBlock = 2260;       // until the first products are there, and the last stores
constexpr double kFlatTensor = 1.13;      // of the tensor core's rate
constexpr double kFlatIssued = 5.49;      // from one instruction of a warp to the next
constexpr double kFlatLaid = 109;         // instructions, for 16 rows: added, packed, laid out
constexpr double kFlatStored = 4.09;      // to store what a lane has together, beside fetching it
constexpr double kFlatTile = 522;         // cycles, of a warp: places, barriers
constexpr double kFlatShifted = 294;      // of a warp, for as many channels as it shifts at once
constexpr double kFlatChunk = 393;        // of a warp that shifts
constexpr double kFlatL2Bytes = 45.4;     // a cycle
constexpr double kFlatWait = 218;         // for a chunk
constexpr double kFlatMemoryRate = 1.07;  // of the copy rate: most is written
constexpr double kFlatCopied = 0.216;     // of what is copied beside the work, what is seen;
constexpr double kFlatBeside = 0.266;     // of the lesser of work and bytes
// Work over what is counted: planes of whole 16 bytes; others under kernels of 2 x 2 and of 4 x 4.
constexpr double kFlatOver = 1.175, kFlatMoved2 = 1.15, kFlatMoved4 = 1.53;
constexpr double kFlatFour = 1.32;  // the same, of four warpgroups instead of two (2026-11-30)

// Crossed tiles (by 7 layers' on an H200, 2026-11-30).
constexpr double kCrossedLaunch = 6;  // us
constexpr double kCrossedBlock =
    4000;  // cycles until weights are turned, beside their copying; the last stores
constexpr double kCrossedTensor = 0.73;  // of the tensor core's rate: shared memory is as busy
constexpr double kCrossedMoved = 1.3;    // work over that where second planes begin later
constexpr double kCrossedSlice =
    150;  // from one product of a warpgroup to the next: fetched, multiplied
constexpr double kCrossedStored = 1200;   // of a warpgroup: a tile's outputs
constexpr double kCrossedL2Bytes = 36;    // a cycle
constexpr double kCrossedLatency = 1200;  // cycles until a stage is filled again
constexpr double kCrossedMemoryRate = 1;  // of the copy rate
constexpr double kCrossedBeside = 0.25;   // of the lesser of work and bytes

struct Choice {
  int row;  // of kTiles
  bool resident;
  int depth, stages;
  bool strips;
  int segments;
  int walkers;
};

int64_t round_down(int64_t value, int64_t to) { return -round_up(-value, to); }

// How many channels a block of 64 rows holds where the copy engine brings runs of `blocks` of them, which start at
// multiples of 16 bytes.
int64_t copied_channels(int64_t taps, int64_t blocks, int64_t vector) {
  int64_t count = kRows / taps;
  for (bool fits = false; !fits; count -= !fits) {
    fits = true;
    for (int64_t run = 0; run < vector; ++run)
      fits &= run * blocks * count * taps % vector + blocks * count * taps <= blocks * kRows;
  }
  return count;
}

// Neighbouring planes of x that together are whole 16 bytes.
int64_t planes_of_set(const Problem& problem) {
  const int64_t vector = 16 / static_cast<int64_t>(element_size(problem.dtype));
  return vector / std::gcd(problem.h.in * problem.w.in, vector);
}
// Those of 16 bits come by sets where there is more than one.
bool is_shifted(const Problem& problem) {
  return element_size(problem.dtype) == 2 && planes_of_set(problem) > 1;
}

// An output is a product, and of words two neighbouring pixels are in a row.
bool is_flat(const Problem& problem) {
  const Axis &h = problem.h, &w = problem.w;
  const auto exact = [](const Axis& axis) {
    return axis.kernel == axis.stride && axis.near_pad == 0 && axis.out == axis.in * axis.stride;
  };
  if (!exact(h) || !exact(w) || h.kernel != w.kernel) return false;
  if (element_size(problem.dtype) == 2) return w.kernel == 2 || w.kernel == 4;
  return element_size(problem.dtype) == 4 && (w.kernel == 1 || (w.kernel == 2 && w.in % 2 == 0));
}
// A lane's pixels are neighbours in pairs, and weights are copied.
bool is_crossed(const Problem& problem) {
  return is_flat(problem) && element_size(problem.dtype) == 4 && !is_strict(problem) &&
         problem.w.kernel == 2 && planes_of_set(problem) <= 2 && problem.w_layout == Layout::nchw;
}
bool is_flat_halves(const Problem& problem) {
  return is_flat(problem) && element_size(problem.dtype) == 2;
}

// Rows of x that start at multiples of 16 bytes are so many apart; shifted ones need not.
int64_t row_quantum(const Params& p) {
  if (p.set_shift > 0) return 1;
  const int64_t vector = vector_numbers(p.number_bytes);
  return vector / std::gcd(int64_t{p.x_w}, vector);
}

// Rows of x: as many of a plane as start at multiples of 16 bytes, or strips of one. Pairs of outputs of a row of y have a
// position each. Returns why it cannot be done, or an empty string.
std::string set_rows(const Problem& problem, bool strips, Tile tile, Params& p) {
  const Axis &h = problem.h, &w = problem.w;
  const int64_t vector = vector_numbers(p.number_bytes), quantum = row_quantum(p);
  // Before the first pixel that is to be shifted there are up to so many others, beside those of a start between vectors.
  const int64_t before = ((int64_t{1} << p.set_shift) - 1) * p.plane_rest,
                lead = tile.shifted ? before + vector - 1 : 0;
  const int64_t pixels = tile_pixels(tile) - (p.flat ? round_up(before, vector) : lead);
  // Outputs 2 q and 2 q + 1 have products of pixels q + low to q + high.
  const int64_t low = round_down(w.near_pad + 1 - w.kernel + 1, kStride) / kStride,
                high = (w.near_pad + 1) / kStride;
  const int64_t positions = ceil_div(w.out, kStride);
  if (p.flat) {
    p.strips = static_cast<int32_t>(ceil_div(p.x_w, pixels));
    p.strip_positions = static_cast<int32_t>(pixels);
    p.tile_rows = p.tile_images = 1;
    p.image_lines = tile.crossed ? static_cast<int32_t>(ceil_div(p.x_w, line_pixels(p)))
                                 : tile_lines(tile, p.number_bytes);
    return {};
  }
  p.strips = 1;
  p.tile_images = 1;
  p.image_lines = tile_lines(tile, p.number_bytes);
  if (strips) {
    if (w.in % vector != 0) return "rows of x are not whole vectors";
    p.low_w = static_cast<int32_t>(round_down(low, vector));
    const int64_t most = round_down(pixels - (high - p.low_w), vector);
    if (most <= 0) return "near_pad is too large";
    p.strips = static_cast<int32_t>(ceil_div(positions, most));
    if (p.strips < 2) return "rows are no longer than a tile";
    p.strip_positions = static_cast<int32_t>(round_up(ceil_div(positions, p.strips), vector));
    p.tile_rows = 1;
  } else {
    p.low_w = static_cast<int32_t>(round_down(low, 2));
    p.strip_positions = static_cast<int32_t>(positions);
    p.tile_rows = static_cast<int32_t>(std::min(round_down(pixels / w.in, quantum), h.in));
    if (h.in * w.in <= pixels) p.tile_rows = static_cast<int32_t>(h.in);
    const auto lines =
        static_cast<int32_t>(ceil_div(h.in * w.in + lead, line_numbers(p.number_bytes)));
    // Images have whole lines, whose pixels are all multiplied.
    if (lines * 2 <= p.image_lines && held_pixels(tile) == tile_pixels(tile)) {
      p.tile_images = p.image_lines / lines;
      p.image_lines /= p.tile_images;
    }
    if (p.tile_rows == 0) return "rows of x are longer than a tile";
  }
  p.row_pitch = static_cast<int32_t>(round_up(p.strip_positions + high - p.low_w, 2));
  if (p.tile_images > 1)
    p.rows_apart = static_cast<int32_t>(std::max(h.in, ceil_div(h.out + h.near_pad, kStride)));
  // Two that nobody reads are at the end.
  if (p.tile_images * p.tile_rows * p.row_pitch + 2 > pitch(tile))
    return "a tile has too many products";
  p.rows_apart_magic = magic_of(std::max(p.rows_apart, 1));
  p.paired = w.in % 2 == 0;
  p.packed = w.out % 2 == 0;
  for (p.row_shift = 5; p.row_shift > 2 && 1 << (p.row_shift - 1) >= p.strip_positions;)
    --p.row_shift;
  return {};
}

// How x is divided among blocks.
void set_items(const Problem& problem, const Choice& choice, Params& p) {
  const int64_t quantum = choice.strips ? 1 : row_quantum(p);
  p.reach_rows = static_cast<int32_t>(round_up((p.kernel - 1) / kStride, quantum));
  // Whole tiles, with the rows that an item starts with.
  const int64_t step = std::max<int64_t>(quantum, p.tile_rows);
  const int64_t rows =
      choice.segments == 1 || p.tile_rows >= p.x_h
          ? p.x_h
          : round_up(ceil_div(p.x_h, choice.segments) + p.reach_rows, step) - p.reach_rows;
  p.segments = static_cast<int32_t>(ceil_div(p.x_h, rows));
  p.segment_rows = static_cast<int32_t>(rows);
  p.carried_rows = p.tile_rows < p.x_h ? p.kernel - kStride : 0;
  p.items = static_cast<int32_t>(ceil_div(problem.batch, p.tile_images)) * p.strips * p.segments;
  const Tile tile = kTiles[choice.row];
  if (tile.crossed)  // lines of all planes, one after the other
    p.items = static_cast<int32_t>(
        ceil_div(problem.batch * p.image_lines, tile_lines(tile, p.number_bytes)));
  p.walkers = std::min(choice.walkers, p.items);
}

void set_shared_memory(Tile tile, Params& p) {
  SharedPlaces places{kHeader};
  p.weights_at = places.take(p.resident ? int64_t{p.chunks} * weight_bytes(p, tile) : 0, 1024);
  p.stages_at = places.take(int64_t{p.stages} * stage_bytes(p, tile), 1024);
  p.products_at =
      tile.flat ? places.take(int64_t{consumers(tile)} / 32 * laid_bytes(tile), 1024)
                : places.take(p.flat ? 0 : int64_t{tile.row_groups} * product_bytes(tile), 16);
  p.carried_at = places.take(int64_t{row_blocks(tile)} * 2 * carried_bytes(p), 16);
  p.shared_bytes = static_cast<int32_t>(places.end) + 32 * 4;  // lanes beyond a row's end read on
}

bool words(const Params& p) { return p.number_bytes == 4; }

// Chunks whose x can come as one box: words are eights of channels there, which must not be those of two groups.
int32_t box_chunks(const Params& p) {
  const bool eights = p.reduce % kRegionChannels == 0;
  if (!words(p) || (p.groups == 1 && eights)) return p.chunks;
  return p.groups == 1 || eights ? p.reduce / p.depth : 0;
}

// Everything that follows from the problem and the choice, pointers aside. Returns why it cannot be done, or an empty
// string.
std::string shape(const Problem& problem, const Choice& choice, Params& p) {
  const Tile tile = kTiles[choice.row];
  const Axis &h = problem.h, &w = problem.w;
  p = {};
  set_extents(problem, p);
  p.x_h = static_cast<int32_t>(h.in);
  p.x_w = static_cast<int32_t>(w.in);
  p.y_h = static_cast<int32_t>(h.out);
  p.y_w = static_cast<int32_t>(w.out);
  p.number_bytes = static_cast<int32_t>(element_size(problem.dtype));
  p.kernel = static_cast<int32_t>(h.kernel);
  p.pad_h = static_cast<int32_t>(h.near_pad);
  p.pad_w = static_cast<int32_t>(w.near_pad);
  p.flat = is_flat(problem);
  if (p.flat) {
    p.row_w = p.x_w;
    p.row_magic = magic_of(p.row_w);
    p.x_w *= p.x_h;
    p.x_h = 1;
  }
  p.depth = choice.depth;
  if (tile.shifted || tile.crossed) {
    while (1 << p.set_shift < planes_of_set(problem)) ++p.set_shift;
    p.plane_rest = static_cast<int32_t>(h.in * w.in % vector_numbers(p.number_bytes));
    const int32_t sets = tile.crossed ? slice_channels(p.number_bytes) : shifted_channels(tile);
    if (p.set_shift > 0 && p.depth >> p.set_shift < sets)
      return "a chunk has too few sets of planes";
  }
  p.chunks = static_cast<int32_t>(ceil_div(p.reduce, choice.depth));
  p.box_chunks = box_chunks(p);
  p.stages = choice.stages;
  p.resident = choice.resident;
  const int vector = vector_numbers(p.number_bytes);
  p.copied = problem.w_layout == Layout::nchw && p.columns * taps(p) % vector == 0;
  if (!choice.resident && !p.copied) return "weights are not rows of whole vectors";
  p.row_channels = static_cast<int32_t>(std::min<int64_t>(
      p.resident ? kRows / taps(p)
                 : copied_channels(taps(p), words(p) ? row_blocks(tile) : 1, vector),
      p.columns));
  if (tile.flat) {
    p.row_channels = kRows / taps(p);
    if (p.row_w > kMostFlatRow)
      return "rows of " + std::to_string(p.row_w) + " pixels are too long";
  }
  if (p.flat && !tile.flat && int64_t{p.x_w} * p.row_w > UINT32_MAX)
    return "planes of " + std::to_string(p.x_w) + " pixels are too large";  // for divide()
  if (p.flat) p.together = p.kernel == 2 ? std::gcd(p.row_w, 4) : 1;
  p.column_blocks = static_cast<int32_t>(ceil_div(p.columns, block_channels(p, tile)));
  if (std::string reason = set_rows(problem, choice.strips, tile, p); !reason.empty())
    return reason;
  set_items(problem, choice, p);
  set_shared_memory(tile, p);
  return {};
}

double predict_flat(const Problem& problem, const Device& device, const Params& p, Tile tile) {
  const double depth = double(p.chunks) * p.depth, blocks = tile.row_blocks;
  const double mma =
      tile.groups * blocks * tile.width / 2 * depth / slice_channels(2) / kFlatTensor +
      p.chunks * kFlatWait;
  // Of a warp: 16 rows of each block.
  const double steps = tile.width / (8. * p.together) * (p.kernel == 2 ? 2 : 1);
  const double store =
      kFlatTile + blocks * kFlatIssued * (kFlatLaid + steps * (p.together + kFlatStored));
  const int sets = 1 << p.set_shift;
  const double shift =
      sets == 1 ? 0
                : p.chunks * kFlatChunk +
                      std::ceil(depth * (sets - 1) / sets / shifted_channels(tile) / kHelpers) *
                          kFlatShifted;
  const double weights = double(p.chunks) * weight_bytes(p, tile);
  const double copied =
      (double(p.chunks) * x_bytes(p, tile) + (p.resident ? 0 : weights)) / kFlatL2Bytes;
  // A warpgroup stores while the other one multiplies.
  const double cycles =
      std::max({mma, mma / tile.groups + store, shift, copied}) + kFlatCopied * copied;
  const double waves = std::ceil(double(blocks_of(p)) / device.sm_count);
  const double items = std::ceil(double(p.items) / p.walkers);
  const double resident =
      p.resident ? weights * (p.copied ? 1 / kFlatL2Bytes : kHalves.resident) : 0;
  const double over = (sets == 1       ? kFlatOver
                       : p.kernel == 2 ? kFlatMoved2
                                       : kFlatMoved4) *
                      (tile.groups == 4 ? kFlatFour : 1);
  const double busy_us = over * waves * (kFlatBlock + resident + items * cycles + store) / kClock;
  const double memory_us = tensor_bytes(problem) / (kFlatMemoryRate * device.copy_bytes_per_us);
  return kFlatLaunch + std::max(busy_us, memory_us) + kFlatBeside * std::min(busy_us, memory_us);
}

double predict_crossed(const Problem& problem, const Device& device, const Params& p, Tile tile) {
  const double slices = double(p.chunks) * p.depth / slice_channels(p.number_bytes);
  // A warpgroup's products of a slice, alone on the tensor core.
  const double product = tile.width * row_blocks(tile) / 2 / kCrossedTensor;
  const double mma = tile.groups * slices * product * (p.set_shift > 0 ? kCrossedMoved : 1);
  const double cycles = std::max({mma, (mma + p.chunks * kCrossedLatency) / p.stages,
                                  slices * std::max(product, kCrossedSlice) + kCrossedStored,
                                  double(p.chunks) * x_bytes(p, tile) / kCrossedL2Bytes});
  const double weights = double(p.chunks) * weight_bytes(p, tile) / kCrossedL2Bytes;
  const double waves = std::ceil(double(blocks_of(p)) / device.sm_count);
  const double items = std::ceil(double(p.items) / p.walkers);
  const double busy_us = waves * (kCrossedBlock + weights + items * cycles) / kClock;
  const double memory_us = tensor_bytes(problem) / (kCrossedMemoryRate * device.copy_bytes_per_us);
  return kCrossedLaunch + std::max(busy_us, memory_us) +
         kCrossedBeside * std::min(busy_us, memory_us);
}

double predict(const Problem& problem, const Device& device, const Params& p, Tile tile) {
  if (tile.crossed) return predict_crossed(problem, device, p, tile);
  if (tile.flat) return predict_flat(problem, device, p, tile);
  const Costs& cost = tile.strict ? kStrict : words(p) ? kWords : tile.shifted ? kShifted : kHalves;
  const double mma = cost.multiply * tile.groups * tile.row_blocks * p.chunks * p.depth /
                     slice_channels(p.number_bytes) * tile.width / 2;
  // Of warps: products that are stored, spots that collect them.
  const double stored = double(row_blocks(tile)) * kRows * tile_pixels(tile) / 32;
  const double rows = p.tile_rows + (p.carried_rows > 0 ? 1 : 0);
  const double lanes = double(1 << p.row_shift);
  const double spots = p.tile_images * std::ceil(rows / (32 / lanes)) *
                       std::ceil(p.strip_positions / lanes) * block_channels(p, tile);
  const double collect =
      p.flat ? cost.flat * stored : cost.stored * stored + spots * (cost.spot + cost.tap * taps(p));
  const double turn = cost.region * p.chunks * x_bytes(p, tile) / kRegion;
  const double chunk = (stage_bytes(p, tile) - low_bytes(p, tile)) / cost.l2_bytes;
  // Copied while outputs are collected, as much as there is room for.
  const double ahead = std::min(p.stages, p.chunks) * chunk;
  const double load = std::max(turn, std::max(0.0, p.chunks * chunk - std::min(ahead, collect)));
  const double in_sight = p.stages == 2 ? cost.shallow * (turn + p.chunks * chunk) : 0;
  // In 16 bits of long sums nothing more: pix2pix_inner and simplepose1 (2026-11-24).
  const double most_waited = words(p) ? mma : kMostWaited;
  const double tile_cycles = cost.tile + std::max(mma, load) +
                             cost.wait * std::min({mma, load, most_waited}) + in_sight + collect;
  const double waves = std::ceil(double(blocks_of(p)) / device.sm_count);
  const double items = std::ceil(double(p.items) / p.walkers);
  const double tiles =
      std::ceil((p.segment_rows + (p.segments > 1 ? p.reach_rows : 0)) / double(p.tile_rows));
  const double resident = p.resident ? cost.resident * p.chunks * weight_bytes(p, tile) : 0;
  // Weights that stay are there before anything else moves.
  const double before_us = waves * resident / kClock;
  const double busy_us = waves * (cost.block + items * (cost.item + tiles * tile_cycles)) / kClock;
  const double memory_us = tensor_bytes(problem) / (cost.memory_rate * device.copy_bytes_per_us);
  return cost.launch + before_us + std::max(busy_us, memory_us) +
         cost.beside * std::min(busy_us, memory_us);
}

std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason) {
  std::vector<Candidate<Choice>> found;
  const int64_t rows = problem.group_out() * problem.h.kernel * problem.w.kernel;
  const auto consider = [&](Choice choice) {
    const Tile tile = kTiles[choice.row];
    Params p;
    std::string why = shape(problem, choice, p);
    if (why.empty() && p.shared_bytes > device.smem_optin)
      why = "a tile needs " + std::to_string(p.shared_bytes) + " bytes of shared memory";
    if (!why.empty()) {
      reason = why;
      return;
    }
    choice.stages =
        std::min(kMostStages, 2 + (device.smem_optin - p.shared_bytes) / stage_bytes(p, tile));
    const int64_t combinations = int64_t{p.groups} * p.column_blocks;
    int before = 0;
    for (choice.segments = 1; choice.segments <= 64;
         choice.segments += std::max(1, choice.segments / 4)) {
      for (const int waves : {1, 2, 4}) {
        choice.walkers =
            static_cast<int>(std::max<int64_t>(1, int64_t{device.sm_count} * waves / combinations));
        shape(problem, choice, p);
        if (p.segments == before) break;  // x has no more rows
        found.push_back({choice, predict(problem, device, p, tile)});
        if (p.walkers < choice.walkers) break;
      }
      before = p.segments;
    }
  };
  const bool strict = is_strict(problem), flat = is_flat_halves(problem),
             shifted = flat || is_shifted(problem);
  for (int row = 0; row < kTileCount; ++row) {
    const Tile tile = kTiles[row];
    if (tile.crossed ? !is_crossed(problem)
                     : tile.strict != strict || tile.shifted != shifted || tile.flat != flat)
      continue;
    if (!has_tile(row, static_cast<int>(element_size(problem.dtype)))) continue;
    const bool half_empty = rows * 2 <= int64_t{row_blocks(tile)} * kRows;
    if (half_empty && row_blocks(tile) > 1) continue;
    for (const int depth : {64, 32, 16}) {
      if (depth * element_size(problem.dtype) > kLine) continue;
      if (depth > 16 && depth / 2 >= problem.group_in()) continue;
      for (const bool resident : {true, false})
        for (const bool strips : {false, true})
          if ((resident || !tile.crossed) && (!strips || !is_flat(problem)))
            consider({row, resident, depth, 2, strips, 1, INT32_MAX});
    }
  }
  return found;
}

Plan plan_of(const Problem& problem, const Candidate<Choice>& candidate) {
  const Choice& c = candidate.choice;
  const Tile tile = kTiles[c.row];
  Params p;
  shape(problem, c, p);
  Plan plan;
  plan.row = c.row;
  plan.predicted_us = candidate.predicted_us;
  const int detail[] = {c.resident, c.depth, c.stages, c.strips, c.segments, c.walkers};
  std::copy(std::begin(detail), std::end(detail), plan.detail);
  plan.note =
      std::to_string(block_channels(p, tile)) + " channels (" +
      std::to_string(row_blocks(tile) * kRows) + " rows) x " +
      (p.flat              ? std::to_string(tile_pixels(tile)) + " pixels"
       : p.strips > 1      ? std::to_string(p.strip_positions) + " pixels of a row"
       : p.tile_images > 1 ? std::to_string(p.tile_images) + " images"
                           : std::to_string(p.tile_rows) + " rows of " + std::to_string(p.x_w)) +
      ", K " + std::to_string(p.depth) + " x " + std::to_string(p.stages) + " stages, weights " +
      (p.resident ? "resident" : "streamed") + ", " + std::to_string(p.segments) + " segments, " +
      std::to_string(blocks_of(p)) + " blocks";
  return plan;
}

Choice choice_of(const Plan& plan) {
  const int32_t* d = plan.detail;
  return {plan.row, d[0] != 0, d[1], d[2], d[3] != 0, d[4], d[5]};
}

std::string refusal(const Problem& problem, const Device& device) {
  const Axis &h = problem.h, &w = problem.w;
  if (!device.has_wgmma) return "no wgmma (sm_90a)";
  if (problem.direction != Direction::fwd || problem.dtype == DType::f64)
    return "fold is for forward, in 16 or 32 bits";
  if (problem.x_layout != Layout::nchw || problem.y_layout != Layout::nchw)
    return "fold is for NCHW";
  if (!is_flat(problem) &&
      (h.kernel != w.kernel || h.kernel < 3 || h.kernel > 4 || h.stride != kStride ||
       w.stride != kStride || h.dilation != 1 || w.dilation != 1))
    return "fold is for kernels of 3 x 3 and 4 x 4, stride 2, and for those that are their stride: "
           "in 32 bits 1 x 1 and 2 x 2, in 16 bits 2 x 2 and 4 x 4";
  const int64_t pixels = h.in * w.in, set = planes_of_set(problem);
  if (set > 1 && (!is_shifted(problem) || problem.group_in() % set != 0))
    return "planes of x are not whole vectors: " + std::to_string(pixels) + " pixels, " +
           std::to_string(problem.group_in()) + " channels";
  if (set > 1 && pixels < vector_numbers(2)) return "planes of x are smaller than a vector";
  if (problem.wide_index) return "a tensor has more than 2^31 elements";
  return sums_too_short(problem, kLeastWgmmaTerms);
}

}  // namespace

std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason) {
  return all_plans(problem, device, reason, refusal, candidates, plan_of);
}

Decision plan(const Problem& problem, const Device& device) {
  return best_plan(problem, device, refusal, candidates, plan_of);
}

Params params_of(const Problem& problem, const Plan& plan, const Args& args) {
  Params p;
  shape(problem, choice_of(plan), p);
  p.destination = args.y.data;
  p.source = args.x.data;
  p.weight = args.w.data;
  p.bias = problem.has_bias ? args.bias : nullptr;
  for (int i = 0; i < 4; ++i) p.weight_stride[i] = static_cast<int32_t>(args.w.stride[i]);
  return p;
}

// To the copy engine lines are an axis, which says nothing about where a plane or a row of weights ends; so are the eights
// of channels in which words of x lie. Line by line, channels are two axes: sets, and places in a set. The pixels of two
// such places are whole 16 bytes apart, which is less than a plane by `plane_rest`.
Maps maps_of(const Params& p, Tile tile, const Args& args) {
  const int32_t bytes = p.number_bytes, numbers = line_numbers(bytes);
  const auto map_of = [&](TensorBox box) {
    box.rounded = !tile.strict;
    return encode(box);
  };
  // From one to the next, in bytes.
  const int64_t plane = int64_t{p.x_h} * p.x_w * bytes, group = plane * p.reduce,
                image = group * p.groups, row = int64_t{p.columns} * taps(p) * bytes;
  const int32_t channels = words(p) ? kRegionChannels : p.depth;
  const int32_t line_channels = tile.crossed ? p.depth : channels;
  TensorBox x{args.x.data,
              bytes,
              5,
              {plane / bytes, p.reduce, p.image_lines, p.batch, p.groups},
              {bytes, plane, kLine, image, group},
              {numbers, channels, p.image_lines, p.tile_images, 1},
              {1, 1, 1, 1, 1}};
  if (words(p)) {
    x.extent[1] = channels;
    x.extent[4] = std::max<int64_t>(int64_t{p.groups} * p.reduce / channels, 1);
    x.stride[4] = plane * channels;
    x.count[4] = p.depth / channels;
  }
  const int32_t places = 1 << p.set_shift;
  const auto line_of = [&](const void* base, int64_t channel, int64_t apart, int64_t count,
                           int32_t deep) {
    return TensorBox{
        base,
        bytes,
        4,
        {(channel * places - apart * (places - 1)) / bytes, p.reduce / places, count, places},
        {bytes, channel * places, channel * p.reduce, apart},
        {numbers, deep / places, 1, places},
        {1, 1, 1, 1}};
  };
  Maps maps{};
  if (!tile.shifted && !tile.crossed) maps.x = map_of(x);
  maps.x_line = map_of(line_of(args.x.data, plane, plane - int64_t{p.plane_rest} * bytes,
                               int64_t{p.batch} * p.groups, line_channels));
  if (p.resident && !tile.crossed && !(tile.flat && p.copied)) return maps;
  maps.w_line = map_of(line_of(args.w.data, row, row, p.groups, tile.crossed ? channels : p.depth));
  if (words(p) && !p.resident) {
    const int32_t lines = weight_lines(tile, bytes);
    maps.w = map_of({args.w.data,
                     bytes,
                     4,
                     {row / bytes, p.reduce, lines, p.groups},
                     {bytes, row, kLine, row * p.reduce},
                     {numbers, p.depth, lines, 1},
                     {1, 1, 1, 1}});
  }
  return maps;
}

int64_t blocks_of(const Params& p) { return int64_t{p.groups} * p.column_blocks * p.walkers; }

}  // namespace convt2d::cuda::fold
