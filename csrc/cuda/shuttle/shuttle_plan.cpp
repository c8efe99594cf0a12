#include "cuda/shuttle/shuttle_plan.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/phases.h"
#include "cuda/cuda_families.h"
#include "cuda/gather_params.h"
#include "cuda/tensor_map.h"
#include "cuda/weight_cost.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda::shuttle {
namespace {

// Fitted to 1223 plans of 35 layers on an H200, 2026-11-28 (17 % in the mean; what its choices cost, 1.4 %).
constexpr double kClock = 1700;        // cycles a microsecond
constexpr double kLaunch = 5.5;        // us
constexpr double kBlock = 4000;        // cycles of a block beside its K tiles,
constexpr double kStored = 125;        // a sum of each thread, on its way out,
constexpr double kScattered = 470;     // the same to dW, whose neighbours are other blocks'
constexpr double kTile = 50;           // a K tile: barriers, and what follows them,
constexpr double kStrip = 3900;        // a strip: what is asked for comes from memory first
constexpr double kWork = 1.04;         // of what is counted of its busiest part
constexpr double kRest = 0.11;         // of what is less busy that is not hidden
constexpr double kPiece = 300;         // cycles of a row of an entry, of a warp that turns it,
constexpr double kTurn = 317;          // of 32 pixels of it
constexpr double kL2Bytes = 28;        // a cycle
constexpr double kMemoryRate = 0.75;   // of the copy rate
constexpr double kBeside = 0.17;       // of the lesser of work and bytes
constexpr double kSum = 4.2;           // us, the second pass,
constexpr double kPartialRate = 1.15;  // and times the copy rate's time

struct Choice {
  int row, x_blocks, y_blocks, unit_h, unit_w, tile_w, slots, split;
};

int64_t combinations(const Params& p) {
  return int64_t{p.groups} * p.row_blocks * p.column_blocks * p.units_h * p.units_w;
}
int64_t k_tiles(const Params& p) { return int64_t{p.image_groups} * p.strips * p.x_h; }

// Kernel rows in the order of what they leave when divided by the stride, in units. Returns why not, or an empty string.
std::string set_rows(const Problem& problem, const Choice& choice, Params& p) {
  struct Row {
    int64_t residue, quotient, kernel_h;
  };
  const Axis& axis = problem.h;
  std::vector<Row> rows;
  for (int64_t h = 0; h < axis.kernel; ++h) {
    const int64_t offset = h * axis.dilation - axis.near_pad,
                  quotient = floor_div(offset, axis.stride);
    rows.push_back({offset - quotient * axis.stride, quotient, h});
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.residue < b.residue; });
  for (int unit = 0; unit < p.units_h; ++unit) {
    const size_t first = unit * choice.unit_h, end = std::min(rows.size(), first + choice.unit_h);
    RowUnit& of = p.row_unit[unit];
    of = {};
    int64_t low = INT16_MAX, high = INT16_MIN;
    for (size_t i = first; i < end; ++i) {
      low = std::min(low, rows[i].quotient);
      high = std::max(high, rows[i].quotient);
    }
    for (size_t i = first; i < end; ++i) {
      if (i == first || rows[i].residue != rows[i - 1].residue) {
        if (of.residues == kMostResidues) return "too many rows of dY for an entry";
        of.residue[of.residues++] = static_cast<int16_t>(rows[i].residue);
      }
      p.row_tap[i] = {static_cast<int16_t>(rows[i].kernel_h),
                      static_cast<int16_t>(rows[i].quotient - low),
                      static_cast<int16_t>(of.residues - 1)};
    }
    of.low = static_cast<int16_t>(low);
    of.depth = static_cast<int16_t>(high - low + 1);
  }
  return {};
}

int most(const Params& p, int16_t RowUnit::* field) {
  int found = 0;
  for (int i = 0; i < p.units_h; ++i) found = std::max<int>(found, p.row_unit[i].*field);
  return found;
}

// Everything but pointers and strides. Returns why it cannot be done, or an empty string.
std::string shape(const Problem& problem, const Choice& choice, int shared_limit, Params& p) {
  const Tile tile = kTiles[choice.row];
  const Axis &h = problem.h, &w = problem.w;
  const auto count = [](int64_t all, int64_t each) {
    return static_cast<int32_t>(ceil_div(all, each));
  };
  p = {};
  set_weight_extents(problem, p);
  set_geometry(problem, p);
  p.dilation_w = static_cast<int32_t>(w.dilation);
  p.kernel_w = static_cast<int32_t>(w.kernel);
  p.x_blocks = choice.x_blocks, p.y_blocks = choice.y_blocks;
  p.unit_h = choice.unit_h, p.unit_w = choice.unit_w;
  p.row_blocks = count(p.rows, choice.x_blocks * kChannels);
  p.column_blocks = count(p.columns, choice.y_blocks * kChannels);
  p.units_h = count(h.kernel, choice.unit_h);
  p.units_w = count(w.kernel, choice.unit_w);
  p.tile_w = choice.tile_w;
  p.tile_n = kPixels / choice.tile_w;
  p.strips = count(p.x_w, p.tile_w);
  p.image_groups = count(p.batch, p.tile_n);
  p.slots = choice.slots, p.split = choice.split;
  if (const std::string reason = set_rows(problem, choice, p); !reason.empty()) return reason;
  const int span = static_cast<int>((choice.unit_w - 1) * w.dilation);
  p.patch = static_cast<int32_t>((p.tile_w - 1) * w.stride + span + 1);
  p.pitch = count(p.patch, w.stride);
  // Eight neighbouring pixels of two planes meet in no bank.
  const int apart = w.stride % 2 == 0 ? 4 : 0;
  p.plane_bytes = static_cast<int32_t>(round_up(p.tile_n * p.pitch, 8) + apart) * 128;
  p.entry_bytes = most(p, &RowUnit::residues) * p.y_blocks * p.stride_w * p.plane_bytes;
  p.raw_pitch = (count(p.patch + kClasses - 1, 8) | 1) * 16;
  p.raw_bytes = p.tile_n * kClasses * p.raw_pitch;
  p.y_at = kXAt + kStages * x_stage_bytes(p.x_blocks);
  p.raw_at = p.y_at + p.slots * p.entry_bytes;
  // ldmatrix shows up to eleven eights of pixels more than there are.
  p.spare_at = p.raw_at + tile.turners * kRawStages * kPair * p.raw_bytes + 192;
  p.stride_shift = p.stride_w == 1 ? 0 : p.stride_w == 2 ? 1 : p.stride_w == 4 ? 2 : -1;
  p.by_stride = FastDivide(p.stride_w);
  p.by_rows = FastDivide(p.x_h);
  p.by_strips = FastDivide(p.strips);
  if (kPair * p.y_blocks * most(p, &RowUnit::residues) > kMostParts)
    return "an entry has too many parts";
  if (p.raw_pitch / 2 > kMostSpan) return "a row of dY has too many pixels";
  if (p.slots < most(p, &RowUnit::depth)) return "a row of x reads too many entries";
  if (shared_bytes(p, tile) > shared_limit)
    return "a tile takes " + std::to_string(shared_bytes(p, tile)) + " bytes of shared memory";
  return {};
}

double predict(const Problem& problem, const Device& device, const Params& p, Tile tile) {
  const double cells = tile.cells * tile.groups, residues = most(p, &RowUnit::residues);
  const double rows = residues * p.y_blocks;  // of 64 channels, turned a K tile
  const double wide = p.tile_n * round_up(p.patch + 4, 8) * 128.0;  // bytes of a turned row
  const double mma = cells * kChannels * kChannels * kPixels / 2048;
  const double operands = (cells * kSteps * kStep * 128 + tile.groups * x_stage_bytes(1)) / 128;
  const double raw = rows * kClasses * p.raw_bytes;
  const double shared = operands + (2 * rows * wide + raw + x_stage_bytes(p.x_blocks)) / 128;
  const double turn = rows / (tile.turners / kSetWarps) *
                      (kPiece + p.tile_n * kTurn * std::ceil((p.patch + 4) / 32.0));
  const double l2 = (raw + x_stage_bytes(p.x_blocks)) / kL2Bytes;
  const double busiest = std::max({mma, shared, turn, l2});
  const double cycles = kWork * busiest + kRest * (mma + shared + turn + l2 - busiest) + kTile;
  const double blocks = double(combinations(p)) * p.split;
  const double tiles = std::ceil(double(k_tiles(p)) / p.split);
  const double busy_us =
      std::ceil(blocks / device.sm_count) *
      (kBlock + (p.split > 1 ? kStored : kScattered) * tile.cells * kChannels / 2 + tiles * cycles +
       (tiles / p.x_h + 1) * kStrip) /
      kClock;
  return weight_us(problem, device, p.split, busy_us,
                   {kLaunch, kMemoryRate, kBeside, kSum, kPartialRate});
}

// Every tile, in no order: the same for all devices. `reason` says why there is none.
std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason) {
  std::vector<Candidate<Choice>> found;
  const int limit = device.smem_optin;
  const int kernel_h = static_cast<int>(problem.h.kernel),
            kernel_w = static_cast<int>(problem.w.kernel);
  for (int row = 0; row < kTileCount; ++row) {
    const Tile tile = kTiles[row];
    for (int x_blocks : {1, tile.groups}) {
      if (x_blocks > 1 && problem.group_in() <= kChannels) continue;
      const int cells = tile.cells * tile.groups / x_blocks;
      for (int y_blocks : {1, 2}) {
        if (y_blocks > 1 && problem.group_out() <= kChannels) continue;
        const int unit_w = std::min(kernel_w, cells / y_blocks);
        const int most_h = std::min(kernel_h, cells / y_blocks / unit_w);
        std::vector<int> units_h;
        for (int h : {most_h, 1})
          if (ceil_div(kernel_h, h) <= kMostRowUnits) add_once(units_h, h);
        for (int unit_h : units_h)
          for (int tile_w : {64, 32, 16}) {
            if (tile_w > 16 && problem.w.in <= tile_w / 2) continue;
            Choice choice{row, x_blocks, y_blocks, unit_h, unit_w, tile_w, 0, 1};
            Params p;
            choice.slots = kMostSlots;
            if (reason = shape(problem, choice, INT32_MAX, p); !reason.empty()) continue;
            const int depth = most(p, &RowUnit::depth);
            bool fits = false;
            for (int beyond : {3, 2, 1}) {
              choice.slots = depth + beyond;
              if (choice.slots > kMostSlots) continue;
              reason = shape(problem, choice, limit, p);
              if (fits = reason.empty(); fits) break;
            }
            if (!fits) continue;
            if (combinations(p) > INT32_MAX) {
              reason = "dW has too many tiles";
              continue;
            }
            for (int split : splits_worth_trying(problem, combinations(p), k_tiles(p), kPixels)) {
              p.split = choice.split = split;
              found.push_back({choice, predict(problem, device, p, tile)});
            }
          }
      }
    }
  }
  return found;
}

Plan plan_of(const Problem& problem, const Device& device, const Choice& c) {
  const Tile tile = kTiles[c.row];
  Params p;
  shape(problem, c, INT32_MAX, p);
  Plan plan =
      weight_sum_plan(problem, device, c.row, c.split, predict(problem, device, p, tile), kLaunch);
  const int detail[] = {c.x_blocks, c.y_blocks, c.unit_h, c.unit_w, c.tile_w, c.slots};
  std::copy(std::begin(detail), std::end(detail), plan.detail);
  const auto number = [](int64_t value) { return std::to_string(value); };
  plan.note = number(c.x_blocks * kChannels) + " x " + number(c.y_blocks * kChannels) +
              " channels, " + number(c.unit_h) + " x " + number(c.unit_w) + " taps, " +
              number(tile.groups) + " groups of " + number(tile.cells) + " cells, tile " +
              number(p.tile_n) + " x " + number(p.tile_w) + ", " + number(c.slots) +
              " slots, split " + number(c.split) + ", " + number(blocks_of(p)) + " blocks of " +
              number(shared_bytes(p, tile)) + " bytes";
  return plan;
}

std::string refusal(const Problem& problem, const Device& device) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  const Axis &h = problem.h, &w = problem.w;
  if (!device.has_wgmma) return "shuttle is for sm_90a";
  if (problem.direction != Direction::grad_weight) return "shuttle is for grad_weight";
  if (element_size(problem.dtype) != 2) return "shuttle is for 16 bits";
  if (problem.x_layout != Layout::nchw || problem.y_layout != Layout::nchw)
    return "shuttle is for NCHW";
  for (const Axis& axis : {h, w}) {
    if (axis.in < 1 || axis.out < 1) return "no pixels";
    if (axis.stride > 8) return "a stride of " + number(axis.stride);
    if (axis.kernel > kMostRowTaps) return number(axis.kernel) + " taps in a row";
    if (std::abs(axis.near_pad) + axis.kernel * axis.dilation > 4096)
      return "taps lie too far apart";
  }
  // The copy engine steps at whole 16 bytes.
  if (w.in % 8 != 0) return "rows of x, " + number(w.in) + ", are no whole 16 bytes";
  if (problem.batch > 1 && problem.out_channels * h.out * w.out % 8 != 0)
    return "images of dY are no whole 16 bytes";
  if (problem.wide_index) return "a tensor has more than 2^31 elements";
  if (problem.batch * w.in * h.in > INT32_MAX / 2) return "x has too many pixels";
  return {};
}

}  // namespace

int64_t blocks_of(const Params& params) { return combinations(params) * params.split; }

int shared_bytes(const Params& p, Tile tile) {
  return std::max(p.spare_at + 128, kXAt + sum_bytes(tile));
}

std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason) {
  return all_plans(problem, device, reason, refusal, on_reference(candidates),
                   at_hand(device, plan_of));
}

Decision plan(const Problem& problem, const Device& device) {
  return best_plan(problem, device, refusal, on_reference(candidates), at_hand(device, plan_of));
}

Params params_of(const Problem& problem, const Plan& plan, const Args& args) {
  const int32_t* d = plan.detail;
  Params p;
  shape(problem, {plan.row, d[0], d[1], d[2], d[3], d[4], d[5], plan.split}, INT32_MAX, p);
  set_weight_tensors(args, p);
  for (int64_t i = 0; i < kClasses; ++i)
    p.lead[i] =
        static_cast<int32_t>((reinterpret_cast<uintptr_t>(p.y) + i * p.y_h * p.y_w * 2) % 16 / 2);
  const auto steps = weight_steps(args, p);
  std::copy(steps.begin(), steps.end(), p.stride);
  return p;
}

Maps maps_of(const Params& p) {
  constexpr int kBytes = 2;
  const int64_t rows = int64_t{p.groups} * p.rows, x_plane = int64_t{p.x_h} * p.x_w,
                columns = int64_t{p.groups} * p.columns, y_plane = int64_t{p.y_h} * p.y_w;
  Maps maps;
  maps.x = encode({p.x,
                   kBytes,
                   4,
                   {p.x_w, rows, p.x_h, p.batch},
                   {kBytes, x_plane * kBytes, p.x_w * kBytes, rows * x_plane * kBytes},
                   {p.tile_w, kChannels, 1, p.tile_n},
                   {1, 1, 1, 1}});
  // Of axes of one element, since the copy engine steps by whole 16 bytes, which a single image need not have.
  constexpr int64_t kAnyStep = 16;
  const int64_t image = p.batch > 1 ? columns * y_plane * kBytes : kAnyStep;
  for (int64_t i = 0; i < kClasses; ++i) {
    if (i >= columns) {
      maps.y[i] = maps.y[0];
      continue;
    }
    const char* const first = static_cast<const char*>(p.y) + i * y_plane * kBytes;
    maps.y[i] = encode({first - p.lead[i] * kBytes,
                        kBytes,
                        4,
                        {y_plane + p.lead[i], ceil_div(columns - i, kClasses), p.batch, 1},
                        {kBytes, kClasses * y_plane * kBytes, image, kAnyStep},
                        {p.raw_pitch / kBytes, kClasses, p.tile_n, 1},
                        {1, 1, 1, 1},
                        false});
  }
  return maps;
}

}  // namespace convt2d::cuda::shuttle
