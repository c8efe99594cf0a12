#include "cuda/weft/weft_plan.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/phases.h"
#include "cuda/cuda_families.h"
#include "cuda/gather_params.h"
#include "cuda/hopper/hopper_weight_shape.h"
#include "cuda/tensor_map.h"
#include "cuda/weft/weft_shape.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda::weft {
namespace {

// Those of hopper's grad_weight, of channels-last tensors where the kernel is its, of NCHW where the copy engine's way is;
// what is `counted` was not measured.
constexpr double kClock = 1700;    // cycles a microsecond
constexpr double kLaunch = 5.9;    // us
constexpr double kBlock = 11500;   // cycles, of a block beside its K tiles (counted: tables, zeros)
constexpr double kL2Bytes = 38.7;  // a cycle
constexpr double kCopy = 250;      // for who asks
constexpr double kTurn = 60;       // eights of pixels of a warp: looked up,
constexpr double kTurnEach = 30;   // each,
constexpr double kTurnBlock = 60;  // and turned, of a block's channels,
constexpr double kTurnMore = 30;   // and one more of them (counted, all four)
constexpr double kRest = 0.1;      // of what is less busy that is not hidden (counted)
constexpr double kShallow = 0.08;  // more, where two tiles come at once at most (counted)
constexpr double kMemoryRate = 0.9;       // of the copy rate
constexpr double kBeside = 0.15;          // of the lesser of work and bytes
constexpr double kPartialRate = 1.5;      // times the copy rate's time, to write and to add up
constexpr double kScatteredRate = 0.473;  // the same of dW's numbers, in sectors of their own

int64_t combinations(const hopper::WeightParams& p) {
  return int64_t{p.groups} * p.row_blocks * p.column_blocks * p.units;
}

double predict(const Problem& problem, const Device& device, const Params& params,
               WeightTile tile) {
  const hopper::WeightParams& p = params.weight;
  const double instructions = kTileSteps * tile.instructions * tile.groups;
  const double mma = instructions * tile.width / 2;
  // Of dY's segments, what is turned.
  const double raw = params.raw_bytes;
  const double turned = kRowBytes * ((params.direct ? 0 : p.x_blocks * kTilePixels) +
                                     double(p.planes) * p.y_blocks * p.patch_h * p.patch_w);
  // Bytes that go to and from shared memory, 128 a cycle: both operands, what comes, what is turned.
  const double direct = params.direct ? p.x_blocks * kTilePixels * kRowBytes : 0;
  const double shared = instructions * tile.width / 4 +
                        kTileSteps * tile.groups * kCellChannels / 4 +
                        (2 * raw + turned + direct) / 128;
  const double l2 = (raw + direct) / kL2Bytes;
  const int at_once = turned_at_once(tile);
  const auto turned_in = [&](const Side& side) {
    return std::ceil(side.segments * side.octets / double(at_once * kTurnWarps)) *
           (kTurn + kTurnEach * at_once + side.blocks * (kTurnBlock + kTurnMore * (at_once - 1)));
  };
  const Side &x = params.side[kX], &y = params.side[kY];
  const double turn = turned_in(x) + turned_in(y) +
                      kCopy * (x.segments * x.copies + y.segments * y.copies) / kTurnWarps;
  const double busiest = std::max({mma, shared, l2, turn});
  double cycles = busiest + kRest * (mma + shared + l2 + turn - busiest);
  if (p.stages < 3 || params.raw_stages < 3) cycles *= 1 + kShallow;
  const double blocks = double(combinations(p)) * p.split;
  const double tiles = std::ceil(double(tiles_of(p)) / p.split);
  const double busy_us = std::ceil(blocks / device.sm_count) * (kBlock + tiles * cycles) / kClock;
  const double partial = static_cast<double>(partial_bytes(problem, p.split));
  // A warpgroup's taps of a channel share sectors, some of them.
  const double scattered =
      p.split == 1 ? 32 * weight_bytes(problem) / 4.0 / std::min(cells_of_group(tile), 2) : 0;
  const double memory_us =
      (hopper::read_bytes(problem) + partial) / (kMemoryRate * device.copy_bytes_per_us);
  return kLaunch + std::max(busy_us, memory_us) + kBeside * std::min(busy_us, memory_us) +
         (kPartialRate * partial + kScatteredRate * scattered) / device.copy_bytes_per_us;
}

struct PixelTile {
  int h, w;
  bool padded;
};
std::vector<PixelTile> pixel_tiles(const Problem& problem) {
  std::vector<PixelTile> found;
  const int64_t x_h = problem.h.in, x_w = problem.w.in;
  for (int w = hopper::kStepPixels; w <= kTilePixels; w *= 2)
    if (w < 2 * x_w) found.push_back({kTilePixels / w, w, false});
  // As many rows as there is room for, with or without what lies between them.
  for (int64_t pitch = x_w; pitch <= std::min<int64_t>(x_w + 8, kTilePixels); ++pitch) {
    const int64_t h = std::min(x_h, kTilePixels / pitch);
    PixelTile tile{static_cast<int>(ceil_div(x_h, ceil_div(x_h, h))), static_cast<int>(x_w), true};
    const bool known = std::any_of(found.begin(), found.end(), [&](const PixelTile& other) {
      return other.padded && other.h == tile.h;
    });
    if (!known) found.push_back(tile);
  }
  return found;
}

// As many stages as there is room for, in turn. Whether there is.
bool set_stages(const Problem& problem, const Device& device, Choice& choice, Params& params) {
  const WeightTile tile = tile_of(choice.row);
  constexpr int kWays[][2] = {{4, 6}, {4, 5}, {4, 4}, {3, 4}, {3, 3}, {2, 3}, {3, 2}, {2, 2}};
  for (const auto& [stages, raw_stages] : kWays) {
    choice.stages = stages, choice.raw_stages = raw_stages;
    const int64_t all =
        int64_t{stages} * params.stage_bytes + int64_t{raw_stages} * params.raw_bytes;
    if (all > device.smem_optin) continue;
    shape(problem, choice, params);
    if (shared_bytes(params, tile) <= device.smem_optin) return true;
  }
  return false;
}

std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason) {
  std::vector<Candidate<Choice>> found;
  const int64_t rows = ceil_div(problem.group_in(), kCellChannels),
                columns = ceil_div(problem.group_out(), kCellChannels);
  const std::vector<PixelTile> tiles = pixel_tiles(problem);
  const auto try_tile = [&](Choice choice) {
    Params params;
    if (std::string why = shape(problem, choice, params); !why.empty()) {
      reason = why;
      return;
    }
    if (!set_stages(problem, device, choice, params)) {
      reason = "a K tile takes " + std::to_string(params.stage_bytes + params.raw_bytes) +
               " bytes of shared memory";
      return;
    }
    const int64_t combos = combinations(params.weight), all = tiles_of(params.weight);
    if (combos > INT32_MAX || all > INT32_MAX) {
      reason = "dW or x has too many tiles";
      return;
    }
    const int pixels = kTilePixels;
    for (int split : splits_worth_trying(problem, combos, all, pixels)) {
      params.weight.split = choice.split = split;
      found.push_back({choice, predict(problem, device, params, tile_of(choice.row))});
    }
  };
  for (int row = 0; row < kTileCount; ++row) {
    const WeightTile tile = tile_of(row);
    const int instructions = tile.instructions * tile.groups;
    for (int x_blocks = 1; x_blocks <= std::min<int64_t>({instructions, rows, 4}); ++x_blocks) {
      if (tile.groups % x_blocks != 0) continue;
      const int cells = instructions / x_blocks * (tile.width / kCellChannels);
      for (int y_blocks = 1; y_blocks <= std::min<int64_t>({cells, columns, 4}); ++y_blocks) {
        if (cells % y_blocks != 0) continue;
        const int unit_taps = cells / y_blocks;
        if (unit_taps >= 2 * problem.h.kernel * problem.w.kernel) continue;
        for (const PixelTile& pixels : tiles)
          for (const Order order : {Order::planes, Order::columns, Order::kernel_rows})
            for (const bool runs : {true, false})
              try_tile({row, x_blocks, y_blocks, unit_taps, order, pixels.h, pixels.w,
                        pixels.padded, runs, 2, 2, 1});
      }
    }
  }
  return found;
}

Plan plan_of(const Problem& problem, const Device& device, const Choice& c) {
  const WeightTile tile = tile_of(c.row);
  const auto prepared = std::make_shared<Params>();
  Params& params = *prepared;
  shape(problem, c, params);
  Plan plan = weight_sum_plan(problem, device, c.row, c.split,
                              predict(problem, device, params, tile), kLaunch);
  plan.prepared = prepared;
  const int detail[] = {c.x_blocks, c.y_blocks,  c.unit_taps, static_cast<int>(c.order),
                        c.tile_h,   c.tile_w,    c.padded,    c.runs,
                        c.stages,   c.raw_stages};
  std::copy(std::begin(detail), std::end(detail), plan.detail);
  const auto number = [](int64_t value) { return std::to_string(value); };
  plan.note = number(c.x_blocks * kCellChannels) + " x " + number(c.y_blocks * kCellChannels) +
              " channels, " + number(c.unit_taps) + " taps by " +
              (c.order == Order::planes    ? "planes, "
               : c.order == Order::columns ? "columns, "
                                           : "kernel rows, ") +
              number(tile.groups) + " groups of " + number(tile.instructions) + " x " +
              number(tile.width) + " columns, tile " + number(c.tile_h) + "x" + number(c.tile_w) +
              (c.padded ? " padded, " : ", ") + (params.direct ? "x as it lies, " : "") +
              number(params.side[kY].segments) + (c.runs ? " run of " : " lines of ") +
              number(params.side[kY].octets * kEight) + " pixels of " +
              number(params.side[kY].residues) + " planes, " + number(c.raw_stages) + " and " +
              number(c.stages) + " stages, split " + number(c.split) + ", " +
              number(combinations(params.weight) * c.split) + " blocks";
  return plan;
}

std::string refusal(const Problem& problem, const Device& device) {
  if (!device.has_wgmma) return "weft is for sm_90a";
  if (problem.direction != Direction::grad_weight) return "weft is for grad_weight";
  if (element_size(problem.dtype) != 2) return "weft is for fp16 and bf16";
  if (problem.x_layout != Layout::nchw || problem.y_layout != Layout::nchw)
    return "weft is for NCHW";
  constexpr int64_t kLeast = 16;
  if (problem.group_in() < kLeast || problem.group_out() < kLeast)
    return "groups of " + std::to_string(problem.group_in()) + " to " +
           std::to_string(problem.group_out()) + " channels leave most of a cell empty";
  if (problem.wide_index) return "a tensor has more than 2^31 elements";
  return "";
}

}  // namespace

std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason) {
  return all_plans(problem, device, reason, refusal, on_reference(candidates),
                   at_hand(device, plan_of));
}

Decision plan(const Problem& problem, const Device& device) {
  return best_plan(problem, device, refusal, on_reference(candidates), at_hand(device, plan_of));
}

Params params_of(const Problem&, const Plan& plan, const Args& args) {
  Params params = *static_cast<const Params*>(plan.prepared.get());
  hopper::WeightParams& p = params.weight;
  p.weight = args.w.data;
  p.partials = p.split > 1 ? static_cast<float*>(args.workspace) : nullptr;
  for (int i = 0; i < 4; ++i) p.weight_stride[i] = static_cast<int32_t>(args.w.stride[i]);
  return params;
}

// Two numbers are one, or a box had too few. So many planes are one row.
Maps maps_of(const Params& params, const Args& args) {
  const auto map = [&](const void* base, const Side& side, int64_t channels) {
    constexpr int kBytes = 4;
    const int64_t row = int64_t{side.residues} * side.plane * 2;
    const int64_t image = channels / side.residues * row;
    TensorBox box{
        base,
        kBytes,
        4,
        {row / kBytes, channels / side.residues, 1, params.weight.batch},
        {kBytes, row, image, image},
        {side.octets * kEight / 2,
         side.residues == 1 ? side.blocks * kCellChannels : kCellChannels / side.residues, 1, 1},
        {1, 1, 1, 1}};
    box.swizzled = box.rounded = false;
    return encode(box);
  };
  const hopper::WeightParams& p = params.weight;
  const int64_t rows = int64_t{p.groups} * p.rows;
  if (params.direct) {
    // Pixels of a row of the tile, channels, rows, images.
    constexpr int kBytes = 2;
    const int64_t row = int64_t{p.x_w} * kBytes, plane = row * p.x_h;
    const TensorBox x{args.x.data,
                      kBytes,
                      4,
                      {p.x_w, rows, p.x_h, p.batch},
                      {kBytes, plane, row, plane * rows},
                      {p.tile_w, p.x_blocks * kCellChannels, p.tile_h, 1},
                      {1, 1, 1, 1}};
    return {encode(x), map(args.y.data, params.side[kY], int64_t{p.groups} * p.columns)};
  }
  return {map(args.x.data, params.side[kX], rows),
          map(args.y.data, params.side[kY], int64_t{p.groups} * p.columns)};
}

int64_t blocks_of(const Params& params) {
  return combinations(params.weight) * params.weight.split;
}

}  // namespace convt2d::cuda::weft
