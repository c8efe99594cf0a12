#include "cuda/fold/fold_plan.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "core/phases.h"
#include "cuda/gather_params.h"
#include "cuda/tensor_map.h"

namespace convt2d::cuda::fold {
namespace {

// Fitted to 2587 times on the H200 (kernel_bench sweep, fp16, of bench/layers.json and of 48 random layers; 2026-11-22):
// half of them are within 10 %, the chosen plans take 1.024 times the best ones' time.
constexpr double kClock = 1700;     // cycles a microsecond
constexpr double kLaunch = 7.49;    // us
constexpr double kBlock = 5720;     // cycles of a block beside its items
constexpr double kItem = 586;       // of an item beside its tiles
constexpr double kTile = 490;       // of a tile
constexpr double kStored = 3.92;    // of 32 products, on their way to shared memory
constexpr double kSpot = 8.15;      // of a warp's part of two rows of y
constexpr double kTap = 2.6;        // of a tap of it
constexpr double kL2Bytes = 31.6;   // a cycle
constexpr double kWait = 0.337;     // of the lesser of multiplying and copying that is not hidden
constexpr double kResident = 0.35;  // of a byte of weights that stay
constexpr double kMemoryRate = 0.632;  // of the copy rate
constexpr double kBeside = 0.16;       // of the lesser of work and bytes

struct Choice {
  int row;  // of kTiles
  bool resident;
  int depth, stages;
  bool strips;
  int segments;
  int walkers;
};

int64_t round_up(int64_t value, int64_t to) { return ceil_div(value, to) * to; }
int64_t round_down(int64_t value, int64_t to) { return -round_up(-value, to); }

// How many channels 64 rows hold, where the copy engine brings them: they start at multiples of 16 bytes.
int64_t copied_channels(int64_t taps) {
  int64_t count = kRows / taps;
  for (bool fits = false; !fits; count -= !fits) {
    fits = true;
    for (int64_t block = 0; block < 8; ++block)
      fits &= block * count * taps % 8 + count * taps <= kRows;
  }
  return count;
}

// Rows of x: as many of a plane as start at multiples of 16 bytes, or strips of one. Pairs of outputs of a row of y have a
// position each. Returns why it cannot be done, or an empty string.
std::string set_rows(const Problem& problem, bool strips, Tile tile, Params& p) {
  const Axis &h = problem.h, &w = problem.w;
  const int64_t pixels = tile_pixels(tile), quantum = 8 / std::gcd(w.in, int64_t{8});
  // Outputs 2 q and 2 q + 1 have products of pixels q + low to q + high.
  const int64_t low = round_down(w.near_pad + 1 - w.kernel + 1, kStride) / kStride,
                high = (w.near_pad + 1) / kStride;
  const int64_t positions = ceil_div(w.out, kStride);
  p.strips = 1;
  p.tile_images = 1;
  if (strips) {
    if (w.in % 8 != 0) return "rows of x are not whole vectors";
    p.low_w = static_cast<int32_t>(round_down(low, 8));
    const int64_t most = round_down(pixels - (high - p.low_w), 8);
    if (most <= 0) return "near_pad is too large";
    p.strips = static_cast<int32_t>(ceil_div(positions, most));
    if (p.strips < 2) return "rows are no longer than a tile";
    p.strip_positions = static_cast<int32_t>(round_up(ceil_div(positions, p.strips), 8));
    p.tile_rows = 1;
  } else {
    p.low_w = static_cast<int32_t>(round_down(low, 2));
    p.strip_positions = static_cast<int32_t>(positions);
    p.tile_rows = static_cast<int32_t>(std::min(round_down(pixels / w.in, quantum), h.in));
    if (h.in * w.in <= pixels) p.tile_rows = static_cast<int32_t>(h.in);
    if (h.in * w.in <= kLineNumbers) p.tile_images = tile_lines(tile);
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
  const int64_t quantum = choice.strips ? 1 : 8 / std::gcd(int64_t{p.x_w}, int64_t{8});
  const int64_t rows =
      round_up(ceil_div(p.x_h, choice.segments), std::max<int64_t>(quantum, p.tile_rows));
  p.segments = static_cast<int32_t>(ceil_div(p.x_h, rows));
  p.segment_rows = static_cast<int32_t>(rows);
  p.reach_rows = static_cast<int32_t>(round_up((p.kernel - 1) / kStride, quantum));
  p.carried_rows = p.tile_rows < p.x_h ? p.kernel - kStride : 0;
  p.items = static_cast<int32_t>(ceil_div(problem.batch, p.tile_images)) * p.strips * p.segments;
  p.walkers = std::min(choice.walkers, p.items);
}

void set_shared_memory(Tile tile, Params& p) {
  int at = kHeader;
  const auto take = [&](int64_t bytes, int64_t alignment) {
    const int64_t start = round_up(at, alignment);
    at = static_cast<int>(std::min<int64_t>(start + bytes, INT32_MAX / 2));
    return static_cast<int32_t>(start);
  };
  p.weights_at = take(p.resident ? int64_t{p.chunks} * weight_bytes(p, tile) : 0, 1024);
  p.stages_at = take(int64_t{p.stages} * stage_bytes(p, tile), 1024);
  p.products_at = take(int64_t{tile.row_groups} * product_bytes(tile), 16);
  p.carried_at = take(int64_t{row_blocks(tile)} * 2 * carried_bytes(p), 16);
  p.shared_bytes = at + 32 * 4;  // lanes beyond a row's end read on
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
  p.kernel = static_cast<int32_t>(h.kernel);
  p.pad_h = static_cast<int32_t>(h.near_pad);
  p.pad_w = static_cast<int32_t>(w.near_pad);
  p.depth = choice.depth;
  p.chunks = static_cast<int32_t>(ceil_div(p.reduce, choice.depth));
  p.stages = choice.stages;
  p.resident = choice.resident;
  if (!choice.resident && (problem.w_layout != Layout::nchw || p.columns * taps(p) % 8 != 0))
    return "weights are not rows of whole vectors";
  p.row_channels = static_cast<int32_t>(
      std::min<int64_t>(p.resident ? kRows / taps(p) : copied_channels(taps(p)), p.columns));
  p.column_blocks = static_cast<int32_t>(ceil_div(p.columns, block_channels(p, tile)));
  if (std::string reason = set_rows(problem, choice.strips, tile, p); !reason.empty())
    return reason;
  set_items(problem, choice, p);
  set_shared_memory(tile, p);
  return {};
}

double predict(const Problem& problem, const Device& device, const Params& p, Tile tile) {
  const double mma =
      double(kGroups) * tile.row_blocks * p.chunks * p.depth / kSlice * tile.width / 2;
  // Of warps: products that are stored, spots that collect them.
  const double stored = double(row_blocks(tile)) * kRows * tile_pixels(tile) / 32;
  const double rows = p.tile_rows + (p.carried_rows > 0 ? 1 : 0);
  const double lanes = double(1 << p.row_shift);
  const double spots = p.tile_images * std::ceil(rows / (32 / lanes)) *
                       std::ceil(p.strip_positions / lanes) * block_channels(p, tile);
  const double collect = kStored * stored + spots * (kSpot + kTap * taps(p));
  const double copy = p.chunks * stage_bytes(p, tile) / kL2Bytes;
  // Copied while outputs are collected, as much as there is room for.
  const double room = std::min(p.stages, p.chunks) * stage_bytes(p, tile) / kL2Bytes;
  const double load = std::max(0.0, copy - std::min(room, collect));
  const double tile_cycles = kTile + std::max(mma, load) + kWait * std::min(mma, load) + collect;
  const double waves = std::ceil(double(blocks_of(p)) / device.sm_count);
  const double items = std::ceil(double(p.items) / p.walkers);
  const double tiles =
      std::ceil((p.segment_rows + (p.segments > 1 ? p.reach_rows : 0)) / double(p.tile_rows));
  const double resident = p.resident ? kResident * p.chunks * weight_bytes(p, tile) : 0;
  const double busy_us =
      waves * (kBlock + resident + items * (kItem + tiles * tile_cycles)) / kClock;
  const double memory_us = tensor_bytes(problem) / (kMemoryRate * device.copy_bytes_per_us);
  return kLaunch + std::max(busy_us, memory_us) + kBeside * std::min(busy_us, memory_us);
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
    for (choice.segments = 1; choice.segments <= 64; choice.segments *= 2) {
      for (const int waves : {1, 2, 4}) {
        choice.walkers =
            static_cast<int>(std::max<int64_t>(1, int64_t{device.sm_count} * waves / combinations));
        shape(problem, choice, p);
        if (p.segments == before) return;  // x has no more rows
        found.push_back({choice, predict(problem, device, p, tile)});
        if (p.walkers < choice.walkers) break;
      }
      before = p.segments;
    }
  };
  for (int row = 0; row < kTileCount; ++row) {
    const bool half_empty = rows * 2 <= int64_t{row_blocks(kTiles[row])} * kRows;
    if (half_empty && row_blocks(kTiles[row]) > 1) continue;
    for (const int depth : {64, 32, 16}) {
      if (depth > 16 && depth / 2 >= problem.group_in()) continue;
      for (const bool resident : {true, false})
        for (const bool strips : {false, true})
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
      (p.strips > 1        ? std::to_string(p.strip_positions) + " pixels of a row"
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
  if (problem.direction != Direction::fwd || element_size(problem.dtype) != 2)
    return "fold is for 16-bit forward";
  if (problem.x_layout != Layout::nchw || problem.y_layout != Layout::nchw)
    return "fold is for NCHW";
  if (h.kernel != w.kernel || (h.kernel != 3 && h.kernel != 4) || h.stride != kStride ||
      w.stride != kStride || h.dilation != 1 || w.dilation != 1)
    return "fold is for kernels of 3 x 3 and 4 x 4, stride 2";
  if (h.in * w.in % 8 != 0) return "planes of x are not whole vectors";
  if (problem.wide_index) return "a tensor has more than 2^31 elements";
  return {};
}

}  // namespace

std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason) {
  std::vector<Plan> found;
  reason = refusal(problem, device);
  if (!reason.empty()) return found;
  for (const auto& candidate : candidates(problem, device, reason))
    found.push_back(plan_of(problem, candidate));
  return found;
}

Decision plan(const Problem& problem, const Device& device) {
  std::string reason = refusal(problem, device);
  if (!reason.empty()) return Decision::decline(reason);
  reason = "no tile fits";
  const std::vector<Candidate<Choice>> found = candidates(problem, device, reason);
  if (found.empty()) return Decision::decline(reason);
  return Decision::accept(plan_of(problem, cheapest(found)));
}

Params params_of(const Problem& problem, const Plan& plan, const Args& args) {
  Params p;
  shape(problem, choice_of(plan), p);
  p.destination = args.y.data;
  p.weight = args.w.data;
  p.bias = problem.has_bias ? args.bias : nullptr;
  for (int i = 0; i < 4; ++i) p.weight_stride[i] = static_cast<int32_t>(args.w.stride[i]);
  return p;
}

// A box is 64 numbers of each channel of a chunk: pixels of an image, or rows of the weights.
Maps maps_of(const Params& p, const Args& args) {
  const auto lines = [&](const void* base, int64_t numbers, int64_t images) {
    const int64_t line = 2 * numbers, group = line * p.reduce;
    return TensorBox{base,
                     2,
                     4,
                     {numbers, p.reduce, p.groups, images},
                     {2, line, group, group * p.groups},
                     {kLineNumbers, p.depth, 1, 1},
                     {1, 1, 1, 1}};
  };
  Maps maps{};
  maps.x = encode(lines(args.x.data, int64_t{p.x_h} * p.x_w, p.batch));
  if (!p.resident) maps.w = encode(lines(args.w.data, int64_t{p.columns} * taps(p), 1));
  return maps;
}

int64_t blocks_of(const Params& p) { return int64_t{p.groups} * p.column_blocks * p.walkers; }

}  // namespace convt2d::cuda::fold
