#include "cuda/reed/reed_held_plan.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "cuda/reed/reed_broad_plan.h"
#include "cuda/strict_sums.h"

namespace convt2d::cuda::reed {
namespace {

// Counted; what is dated was measured.
constexpr double kClock = 1700;       // cycles a microsecond
constexpr double kLaunch = 6.2;       // us
constexpr double kBegin = 2500;       // cycles of a block beside its pixels and tiles
constexpr double kTensorTime = 1.15;  // of what the rates of Device say
constexpr double kWideTensorTime = 1.21;
constexpr double kRound = 2;          // instructions of a warp: 32 words rounded
constexpr double kSplit = 6;          // or split
constexpr double kCopy = 4;           // 32 copies of weights of 16 bytes,
constexpr double kUnit = 14;          // 32 units of pixels as vectors,
constexpr double kRun = 22;           // as runs of positions,
constexpr double kTurned = 40;        // or number by number
constexpr double kAround = 70;        // and what a chunk takes beside them
constexpr double kRow = 24;           // 32 stores of four numbers
constexpr double kHeldTile16 = 150;   // what a tile takes beside its stores
constexpr double kL2Bytes = 30;       // a cycle
constexpr double kLatency = 1200;     // cycles
constexpr double kInFlight = 24;      // words of pixels of a thread at once
constexpr double kRest = 0.3;         // of what is less busy that is not hidden
constexpr double kHidden = 0.5;       // of the stores of a tile, where another block multiplies
constexpr double kMemoryRate = 0.85;  // of the copy rate
constexpr double kBeside = 0.3;       // of the lesser of work and bytes
constexpr int64_t kMostTiles = 48;    // of a block that are tried
// Work over what is counted, by 300 times (2026-11-24): strict, where a block is alone, and where runs of weights are short.
constexpr double kStrictOver = 1.12, kAloneOver = 1.15, kShortOver = 1.1;
constexpr int kShort = 32;  // bytes

int number(int64_t value) { return static_cast<int>(value); }

// The slots of a block at most: its positions, the j to step back, and what rows and images have more of them.
int64_t slots_of(const Params& p, int64_t positions, int64_t grid_w) {
  const int64_t width = p.by_width.divisor, image = p.by_image.divisor;
  const int64_t rows = std::min<int64_t>((positions - 1) / width + 1, positions - 1);
  const int64_t images = std::min<int64_t>((positions - 1) / image + 1, positions - 1);
  return positions + (rows + 1) * (p.taps_w - 1) + (images + 1) * (p.taps_h - 1) * grid_w;
}

}  // namespace

void shape_held(const Problem& problem, const Choice& choice, Held& h) {
  h = {};
  Params& p = h.base;
  shape(problem, choice, p);
  const int64_t size = static_cast<int64_t>(element_size(problem.dtype));
  // Two j at once where runs of one are less than a sector, whose weights are neighbours, or channels less than half a chunk.
  p.paired =
      !p.joined && p.taps_w % 2 == 0 && (p.run * size < 32 || p.terms * size <= kChunkBytes / 2);
  const int64_t channels = chunk_of(number(size)) >> p.paired;
  p.chunks = number(int64_t{p.taps_h} * (p.taps_w >> p.paired) * ceil_div(p.terms, channels));
  h.tiles = choice.tiles;
  h.parts = choice.parts;
  h.grid_h = number(p.by_image.divisor / p.by_width.divisor + p.taps_h - 1);
  h.grid_w = number(p.by_width.divisor + p.taps_w - 1);
  h.ahead = (p.taps_h - 1) * h.grid_w + p.taps_w - 1;
  const bool wide = choice.row == kWideRow || choice.row == kBroadRow;
  const int streams = h.parts * (choice.row == kWideRow ? kWideGroups : 1);
  h.each = p.row_blocks / streams, h.more = p.row_blocks % streams;
  h.slots = number(wide ? h.tiles * 16 + h.ahead : slots_of(p, h.tiles * 16, h.grid_w));
  h.units = number(round_up(p.terms * size, wide ? 128 : 32) / 16);
  // An odd number of 16 bytes: neighbours lie in different banks.
  h.pitch = wide ? 128 : h.units * 16 + 16;
  h.images = number(problem.batch);
  const int64_t columns =
      wide ? problem.batch * h.grid_h * h.grid_w - h.ahead : int64_t{p.positions};
  p.position_blocks = number(ceil_div(columns, h.tiles * 16));
  if (p.way != kVectors && problem.x_layout == Layout::nchw && p.x_w * size % 16 == 0)
    h.turned = number(p.x_w * size / 16);
  h.together = p.vector == 2 && p.unit == 2 && p.by_width.divisor % 2 == 0 && p.pad_w == 0 &&
               p.y_w == 2 * int(p.by_width.divisor) && p.y_w % 4 == 0;
  h.by_grid = FastDivide(int64_t{h.grid_h} * h.grid_w);
  h.by_grid_w = FastDivide(h.grid_w);
  h.by_units = FastDivide(h.units);
  h.by_pairs = FastDivide(std::max(1, (h.turned + 1) / 2));
}

namespace {

// Cycles until a block's pixels are there.
double pixel_cycles(const Problem& problem, const Held& h) {
  const Params& p = h.base;
  const int size = static_cast<int>(element_size(problem.dtype));
  const double units = double(h.slots) * h.units;
  const double words = h.turned || p.way == kVectors ? 4 : 16.0 / size;  // of a unit
  const double instructions = h.turned ? kRun : p.way == kVectors ? kUnit : kTurned * words / 4;
  return units / 32 * instructions / 4 +
         std::max(units * 16 / kL2Bytes,
                  std::ceil(units * words / kHeldThreads / kInFlight) * kLatency);
}

double with_bytes(const Problem& problem, const Device& device, double busy_us) {
  const double memory_us = tensor_bytes(problem) / (kMemoryRate * device.copy_bytes_per_us);
  return kLaunch + std::max(busy_us, memory_us) + kBeside * std::min(busy_us, memory_us);
}

// Of wgmma's tiles.
double predict_wide(const Problem& problem, const Device& device, const Held& h) {
  const Params& p = h.base;
  const double columns = h.tiles * 16, groups = kWideGroups;
  // Of a chunk of a warpgroup: the tensor cores, shared memory, L2 and issuers.
  const double rate = device.matmul_tf32_per_us / device.sm_count / kClock / kWideTensorTime;
  const double mma = kHeldRows * columns * 32 / rate;
  const double shared = 2 * 128 + kSteps * 2 * columns / 4;
  const double l2 = double(p.terms) * p.taps_h * p.taps_w * p.used * 4 / kL2Bytes / p.chunks;
  const double issue = 220;
  const double busiest = std::max({mma, shared, l2, issue});
  const double chunk = busiest + kRest * (mma + shared + l2 + issue - busiest);
  const double stored = columns / 4 * kRow + kHeldTile16;
  // A warpgroup alone waits for itself.
  const double alone = mma + 500;
  const double tiles = std::ceil(double(p.row_blocks) / h.parts / groups);
  const double block = kBegin + pixel_cycles(problem, h) +
                       tiles * (p.chunks * std::max(groups * chunk, alone) + groups * stored);
  const double rounds = std::ceil(double(blocks_of(h)) / device.sm_count);
  return with_bytes(problem, device, rounds * block / kClock);
}

// Blocks of a multiprocessor.
int side_by_side(const Problem& problem, const Device& device, const Held& h) {
  const int bytes = shared_bytes(h, static_cast<int>(element_size(problem.dtype)));
  return !is_strict(problem) && bytes <= device.smem_per_sm / 2 - 1024 ? 2 : 1;
}

double predict(const Problem& problem, const Device& device, const Held& h) {
  const Params& p = h.base;
  const int size = static_cast<int>(element_size(problem.dtype));
  const bool half = size == 2, strict = is_strict(problem);
  const double products = strict ? 3 : 1, m = warp_tiles(h.tiles), n = kHeldColumns;
  const double warps = kHeldThreads / 32;
  const double all_steps = double(p.taps_h) * p.taps_w * std::ceil(p.terms * size / 32.0);
  // Of a tile of rows, cycles of a multiprocessor: its tensor cores,
  const double rate = (half ? device.mma_f16_per_us : device.mma_tf32_per_us) / device.sm_count /
                      kClock / kTensorTime;
  const double mma =
      held_positions(number(m)) * double(kHeldRows) * all_steps * 32 / size * products / rate;
  // its four issuers,
  const double words = 2 * n + (strict ? 4 * m : 0);
  const double step =
      m * n * products + m + (half ? 2 : 4) + (half ? 0 : words * (strict ? kSplit : kRound)) + 6;
  const double copies = double(kHeldRows) * kChunkBytes / 16 / 32;
  const double issue =
      (all_steps * step * warps + p.chunks * (copies * kCopy + kAround * warps)) / 4;
  // shared memory, and weights from L2, whose shorter runs come in sectors of 32 bytes.
  const double shared =
      all_steps * warps * (4 * m + 2 * n) + p.chunks * double(kHeldRows) * kChunkBytes / 128;
  const double sectors =
      p.joined || p.paired || p.run * size >= 32 ? 1 : std::min(32.0 / (p.run * size), 2.0);
  const double l2 = double(p.terms) * p.taps_h * p.taps_w * p.used * size * sectors / kL2Bytes;
  const double busiest = std::max({mma, issue, shared, l2});
  const double multiplied = busiest + kRest * (mma + issue + shared + l2 - busiest);
  const double stored = m * n * 2 / 2 * kRow * warps / 4 + kHeldTile16 * warps / 4;
  const double held = pixel_cycles(problem, h);
  const int together = side_by_side(problem, device, h);
  const double blocks = double(blocks_of(h));
  const double tiles = std::ceil(double(p.row_blocks) / h.parts);
  // Full rounds, and what is left, one block or two of a multiprocessor.
  const auto round = [&](double of_each) {
    return kBegin + of_each * held +
           tiles * of_each * (multiplied + stored * (of_each > 1 ? 1 - kHidden : 1));
  };
  const double each = blocks / device.sm_count, full = std::floor(each / together);
  const double busy = full * round(together) +
                      (each > full * together ? round(std::ceil(each - full * together)) : 0);
  const double over = (strict          ? kStrictOver
                       : together == 1 ? kAloneOver
                                       : 1) *
                      (!p.joined && p.run * size <= kShort ? kShortOver : 1);
  return with_bytes(problem, device, over * busy / kClock);
}

}  // namespace

void share_out(const Problem& problem, const Device& device, Choice choice, Predict* predict,
               std::vector<Candidate<Choice>>& found) {
  Held h;
  shape_held(problem, choice, h);
  double least = 0;
  int64_t before = 0;
  const int64_t groups = choice.row == kWideRow ? kWideGroups : 1;
  const int64_t blocks = ceil_div(h.base.row_blocks, groups);
  for (int64_t tiles = 1; tiles <= std::min<int64_t>(blocks, kMostTiles); ++tiles) {
    const int64_t parts = ceil_div(blocks, tiles);
    if (parts == before) continue;
    before = parts;
    h.parts = number(parts);
    if (blocks_of(h) > INT32_MAX) continue;
    const double predicted = predict(problem, device, h);
    if (least > 0 && predicted >= least) continue;
    least = predicted;
    choice.parts = number(parts);
  }
  if (least > 0) found.push_back({choice, least});
}

namespace {

void add_wide(const Problem& problem, const Device& device, std::vector<Candidate<Choice>>& found) {
  for (int stages = kMostStages; stages >= 2; --stages) {
    const Choice choice{kWideRow, stages, kWideColumns / 16, 1};
    Held h;
    shape_held(problem, choice, h);
    if (int64_t{h.slots} * h.units * 16 > device.smem_optin || wide_bytes(h) > device.smem_optin)
      continue;
    share_out(problem, device, choice, predict_wide, found);
    break;
  }
}

}  // namespace

int64_t blocks_of(const Held& h) {
  return int64_t{h.base.groups} * h.parts * h.base.position_blocks;
}

int wide_bytes(const Held& h) {
  return 1024 + wide_slots(h.slots) * h.units * 16 + wide_table_bytes(h.tiles * 16, h.slots) +
         kWideGroups * h.base.stages * held_stage_bytes(4);
}

int shared_bytes(const Held& h, int element_bytes) {
  return held_table_bytes(warp_tiles(h.tiles), h.slots) +
         h.base.stages * held_stage_bytes(element_bytes) + h.slots * h.pitch;
}

// Of each number of tiles of a warp, the most positions of which two blocks have room, or one, with the most stages; the
// best way to share out their rows.
void add_held(const Problem& problem, const Device& device, std::vector<Candidate<Choice>>& found) {
  Held h;
  shape_held(problem, {kHeldRow, 2, 1, 1}, h);
  const Params& p = h.base;
  const int size = static_cast<int>(element_size(problem.dtype));
  // Sums go to y four at once; slots are numbered in 32 bits.
  if (p.w_piece != 16 || p.vector < 4) return;
  const int64_t grid = h.by_grid.divisor;
  if ((problem.batch + 2 + 128 / p.by_image.divisor) * grid > INT32_MAX / 2) return;
  if (int64_t{h.pitch} * grid > INT32_MAX / 2) return;
  if (device.has_wgmma && size == 4 && !is_strict(problem)) add_wide(problem, device, found);
  for (int m = kLeastHeld; m <= kMostHeld; ++m)
    for (int together = is_strict(problem) ? 1 : 2; together >= 1; --together) {
      const int room = together == 2 ? std::min(device.smem_optin, device.smem_per_sm / 2 - 1024)
                                     : device.smem_optin;
      const auto fits = [&](const Choice& choice) {
        if (slots_of(p, choice.tiles * 16, h.grid_w) * h.pitch > room) return false;
        Held here;
        shape_held(problem, choice, here);
        return shared_bytes(here, size) <= room;
      };
      Choice best{kHeldRow, 0, 0, 1};
      for (int tiles = m * kHeldAcross; tiles >= m * kHeldAcross - 1 && best.tiles == 0; --tiles)
        for (int stages = kMostStages; stages >= (together == 2 ? 3 : 2); --stages)
          if (fits({kHeldRow, stages, tiles, 1})) {
            best.tiles = tiles, best.stages = stages;
            break;
          }
      if (best.tiles == 0) continue;
      Held here;
      shape_held(problem, best, here);
      if (side_by_side(problem, device, here) != together) continue;  // both are the same
      share_out(problem, device, best, predict, found);
    }
}

Plan held_plan(const Problem& problem, const Candidate<Choice>& candidate) {
  const Choice& choice = candidate.choice;
  Held h;
  shape_held(problem, choice, h);
  const Params& p = h.base;
  const auto text = [](int64_t value) { return std::to_string(value); };
  Plan plan;
  plan.row = choice.row;
  plan.predicted_us = candidate.predicted_us;
  plan.detail[0] = choice.stages;
  plan.detail[1] = choice.tiles;
  plan.detail[2] = choice.parts;
  plan.note = (choice.row == kHeldRow ? "" : "wgmma, ") + text(h.tiles * 16) + " of " +
              text(p.positions) + " positions held" + (p.paired ? " in pairs, " : ", ") +
              text(h.slots) + " pixels" +
              (h.turned            ? " as runs"
               : p.way == kVectors ? " as vectors"
                                   : "") +
              ", rows by " + text(p.used) + " of " + text(p.rows) + " in " + text(h.parts) +
              " parts, " + text(p.chunks) + " chunks, " + text(p.stages) + " stages, " +
              text(blocks_of(h)) + " blocks of " +
              text(choice.row == kWideRow ? wide_bytes(h)
                   : choice.row == kBroadRow
                       ? broad_bytes(h)
                       : shared_bytes(h, static_cast<int>(element_size(problem.dtype)))) +
              " bytes";
  return plan;
}

Held held_of(const Problem& problem, const Plan& plan, const Args& args) {
  Held h;
  shape_held(problem, {plan.row, plan.detail[0], plan.detail[1], plan.detail[2]}, h);
  point_at(problem, args, h.base);
  return h;
}

}  // namespace convt2d::cuda::reed
