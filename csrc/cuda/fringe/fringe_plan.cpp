#include "cuda/fringe/fringe_plan.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/phases.h"
#include "cuda/cuda_families.h"
#include "cuda/fringe/fringe.h"
#include "cuda/gather_params.h"
#include "cuda/strict_sums.h"
#include "cuda/tensor_map.h"
#include "cuda/weight_cost.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda::fringe {
namespace {

// Fitted to 190 plans of 21 layers and modes, 2026-11-30, an H200: within 4 % (root mean square), measured / predicted is 0.91 to 1.08
// of a layer's plans, and what is chosen takes 1.00 to 1.04 times the best plan.
constexpr double kClock = 1700;     // cycles a microsecond
constexpr double kLaunch = 5.5;     // us
constexpr double kBlock = 7320;     // cycles of a block beside its tiles,
constexpr double kFirst = 23.6;     // bytes a cycle of its first band's dY
constexpr double kStored = 6.7;     // a column's sums, on their way out
constexpr double kBand = 188;       // of a band
constexpr double kTile = 186;       // of a tile,
constexpr double kTurn = 25;        // of who multiplies it, from one to the next,
constexpr double kWait = 11;        // and of who writes it out
constexpr double kWritten = 121;    // four columns, by a warp
constexpr double kConflicts = 1.8;  // a load of those
// Loose planes, fitted to six plans of a layer: by a warp, eight pixels of each lane; what it takes of shared memory.
constexpr double kWrittenEights = 451, kEightsTurns = 52;
constexpr double kShared = 0.91;      // cycles for 128 bytes of shared memory
constexpr double kL2Bytes = 26;       // a cycle
constexpr double kLatency = 1170;     // cycles until what is asked for is there, of all stages
constexpr double kMemoryRate = 1;     // of the copy rate
constexpr double kBeside = 0.35;      // of the lesser of work and bytes,
constexpr double kMostBeside = 29;    // up to so many us: what comes first and what goes last
constexpr double kSum = 0.37;         // us, the second pass,
constexpr double kPartialRate = 1.5;  // and times the copy rate's time

struct Choice {
  int row, row_groups, band_rows, band_tiles, split;  // no tiles: flat
};

int64_t combinations(const Params& p) { return int64_t{p.groups} * p.row_blocks; }
int64_t all_bands(const Params& p) { return int64_t{p.batch} * p.bands; }
int64_t columns_of(const Problem& problem) {
  return problem.group_out() * problem.h.kernel * problem.w.kernel;
}

// See fringe_loose.cuh.
constexpr int kMostWords = 256, kVector = 8;
bool is_loose(const Problem& problem) {
  return element_size(problem.dtype) == 2 &&
         (problem.w.out % kVector != 0 || problem.h.in * problem.w.in % kVector != 0);
}
std::string loose_refusal(const Problem& problem) {
  const Axis &h = problem.h, &w = problem.w;
  if (w.kernel != kLooseTaps || w.stride != 2 || w.dilation != 1 || w.near_pad != 1 ||
      w.out != 2 * w.in)
    return "planes or rows are no whole vectors, and taps of a row are not four that step by two";
  if (h.out * w.out % kVector != 0) return "planes of dY are no whole vectors";
  const int64_t plane = h.in * w.in;
  if (plane % 2 != 0 || problem.group_in() % (kVector / std::gcd<int64_t>(kVector, plane)) != 0)
    return "planes of x do not add up to whole vectors";
  return w.out > 2 * kMostWords / kVector ? "rows of dY are too long" : std::string();
}
bool shape_loose(const Problem& problem, const Choice& choice, Params& p) {
  const Axis &h = problem.h, &w = problem.w;
  const Tile tile = kTiles[choice.row];
  const int64_t plane = h.in * w.in, rows = choice.row_groups * kRows;
  p.flat = 1;
  p.band_rows = static_cast<int32_t>(h.in);
  p.bands_h = p.bands_w = p.bands = 1;
  p.classes = static_cast<int32_t>(kVector / std::gcd<int64_t>(kVector, plane));
  p.class_rows = static_cast<int32_t>(rows / p.classes);
  p.box_rows = static_cast<int32_t>(rows);
  const int64_t alike = kVector / std::gcd<int64_t>(kVector, w.out), most = 2 * kMostWords / w.out;
  const int64_t whole = h.out <= most ? h.out : most / alike * alike;
  if (whole == 0 || p.columns > kBoxLines) return false;
  p.raw_boxes = static_cast<int32_t>(ceil_div(h.out, whole));
  p.raw_rows = static_cast<int32_t>(
      p.raw_boxes == 1 ? whole : round_up(ceil_div(h.out, p.raw_boxes), alike));
  p.raw_words = static_cast<int32_t>(round_up(p.raw_rows * w.out, kVector) / 2);
  p.raw_bytes = p.raw_boxes * p.columns * p.raw_words * 4;
  p.raw_room = p.raw_boxes * raw_box_bytes(p) + 128;
  p.y_at = static_cast<int32_t>(rows * kLooseRow);
  p.stage_bytes = p.y_at + columns(tile) * kRow;
  p.stages_at = static_cast<int32_t>(
      round_up(kPixelsAt + (h.kernel + 2) * round_up(plane, 64) * 2 + kZeroBytes, 1024));
  p.split = choice.split;
  p.by_width = FastDivide(static_cast<uint32_t>(w.in));
  p.by_kernel_h = FastDivide(p.kernel_h);
  return p.raw_room <= 64 << 10;
}

// Everything but pointers. Returns whether it fits.
bool shape(const Problem& problem, const Choice& choice, Params& p) {
  const Axis &h = problem.h, &w = problem.w;
  const Tile tile = kTiles[choice.row];
  const int64_t size = static_cast<int64_t>(element_size(problem.dtype)), pixels = kRow / size;
  p = {};
  set_weight_extents(problem, p);
  set_geometry(problem, p);
  p.dilation_w = static_cast<int32_t>(w.dilation);
  p.row_groups = choice.row_groups;
  p.row_blocks = static_cast<int32_t>(ceil_div(p.rows, int64_t{p.row_groups} * kRows));
  p.run = columns_of(problem) % 4 == 0 ? 4 : 1;
  p.by_runs = FastDivide(columns_of(problem) / p.run);
  if (tile.loose) return shape_loose(problem, choice, p);
  p.box_rows =
      static_cast<int32_t>(std::min<int64_t>(p.row_groups * kRows, round_up(int64_t{p.rows}, 8)));
  p.flat = choice.band_tiles == 0;
  p.band_rows = choice.band_rows;
  p.band_tiles = choice.band_tiles;
  p.bands_h = static_cast<int32_t>(ceil_div(h.in, p.band_rows));
  p.bands_w = p.flat ? 1 : static_cast<int32_t>(ceil_div(w.in, p.band_tiles * pixels));
  p.bands = p.bands_h * p.bands_w;
  const int64_t across = p.flat ? w.in : p.band_tiles * pixels;
  const int64_t listed = round_up(p.band_rows * across, pixels);
  // What pixels of a band meet of dY.
  p.lead = static_cast<int32_t>(round_up(std::max<int64_t>(w.near_pad, 0) * size, 16));
  const int64_t met = (across - 1) * w.stride + (w.kernel - 1) * w.dilation + 1 - w.near_pad;
  p.line_bytes = static_cast<int32_t>(round_up(p.lead + met * size, 16));
  const int64_t lines = (p.band_rows - 1) * h.stride + (h.kernel - 1) * h.dilation + 1;
  if (p.line_bytes / 4 > kBoxWords || lines > kBoxLines || p.columns > kBoxLines ||
      listed > kMostTiles * pixels)
    return false;
  p.lines = static_cast<int32_t>(lines);
  const int64_t raw = p.columns * lines * p.line_bytes;
  if (raw > 128 << 10) return false;
  p.raw_bytes = static_cast<int32_t>(raw);
  p.raw_room = static_cast<int32_t>(round_up(raw, 128));
  p.y_at = p.row_groups * kRows * kRow;
  p.stage_bytes = p.y_at + columns(tile) * kRow;
  p.stages_at = static_cast<int32_t>(round_up(kPixelsAt + listed * 4, 1024));
  p.split = choice.split;
  p.by_width = FastDivide(static_cast<uint32_t>(across));
  p.by_bands = FastDivide(p.bands);
  p.by_bands_w = FastDivide(p.bands_w);
  return true;
}

void set_stages(int stages, Tile tile, Params& p) {
  p.stages = stages;
  p.shared_bytes =
      p.stages_at + std::max(p.stages * p.stage_bytes + kRaws * p.raw_room, sum_bytes(tile));
}
// As many as there is room for; whether that is enough.
bool find_stages(const Device& device, Tile tile, Params& p) {
  const int room = device.smem_optin - p.stages_at - kRaws * p.raw_room;
  const int most = std::min(room / p.stage_bytes, kMostStages);
  // Warpgroups that take tiles by turns each have stages of their own: who passes over a turn of a barrier may take the one
  // before for the next.
  set_stages(p.row_groups == 1 ? most & ~1 : most, tile, p);
  return p.stages >= 2 && p.shared_bytes <= device.smem_optin;
}
// One that is written, one that is multiplied, for each who multiplies.
bool enough_stages(const Params& p) { return p.stages >= (p.row_groups == 1 ? 4 : 3); }

double predict(const Problem& problem, const Device& device, const Params& p, Tile tile) {
  const double size = static_cast<double>(element_size(problem.dtype)), pixels = kRow / size;
  const double column_count = columns(tile), steps = kRow / kStep, mma = steps * column_count / 2;
  // Tiles of an image, whose last band may have fewer rows; loose ones have as many steps as pixels fill.
  const auto tiles_of = [&](int rows) { return std::ceil(double(rows) * p.x_w / pixels); };
  const int last_rows = p.x_h - (p.bands_h - 1) * p.band_rows;
  const double tiles = tile.loose ? std::ceil(double(p.x_h) * p.x_w * size / kStep) / steps
                       : p.flat   ? (p.bands_h - 1) * tiles_of(p.band_rows) + tiles_of(last_rows)
                                  : double(p.x_h) * std::ceil(p.x_w / pixels);
  const double turn = (kTurn + mma) * p.row_groups / kGroups;
  const double row_bytes = tile.loose ? kLooseRow : kRow;
  const double eights =
      double(p.columns) * p.kernel_h * pixels / 8 / 32;  // of a lane each, by warps
  const double written = kWait + (tile.loose ? eights / kWriters * kWrittenEights
                                             : std::ceil(column_count / 4 / kWriters) * kWritten);
  const double loads = size == 2 ? 8 : 4;
  const double writing =
      tile.loose ? eights * kEightsTurns : column_count * kRow / 512 * (loads * kConflicts + 4);
  const double shared = kShared * (writing + p.box_rows * row_bytes / kRow +
                                   steps * p.row_groups * (16.0 * tile.count + column_count / 4));
  const double l2 = (p.box_rows * row_bytes + double(p.raw_bytes) * p.bands / tiles) / kL2Bytes;
  const double of_tile =
      kTile + std::max({mma * p.row_groups, turn, written, shared, l2, kLatency / p.stages});
  const double blocks = double(combinations(p)) * p.split;
  const double bands = std::ceil(double(all_bands(p)) / p.split);
  const double busy_us = std::ceil(blocks / device.sm_count) *
                         (kBlock + p.raw_bytes / kFirst + kStored * column_count +
                          bands * (kBand + tiles / p.bands * of_tile)) /
                         kClock;
  return weight_us(problem, device, p.split, busy_us,
                   {kLaunch, kMemoryRate, kBeside, kSum, kPartialRate, kMostBeside});
}

// Every tile that fits, in no order: the same for all devices. `reason` says why there is none.
std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason) {
  std::vector<Candidate<Choice>> found, few_stages;
  const int64_t size = static_cast<int64_t>(element_size(problem.dtype)), pixels = kRow / size;
  const Axis &h = problem.h, &w = problem.w;
  reason = "what a band meets of dY has no room";
  int row = 0;
  while (columns(kTiles[row]) < columns_of(problem) || kTiles[row].loose != is_loose(problem))
    ++row;
  const auto look = [&](Choice choice) {
    Params p;
    if (!shape(problem, choice, p) || !find_stages(device, kTiles[row], p)) return;
    if (combinations(p) > INT32_MAX || all_bands(p) > INT32_MAX) return;
    for (int split :
         splits_worth_trying(problem, combinations(p), all_bands(p), h.in * w.in / p.bands + 1)) {
      p.split = choice.split = split;
      (enough_stages(p) ? found : few_stages)
          .push_back({choice, predict(problem, device, p, kTiles[row])});
    }
  };
  for (int row_groups : {1, 2}) {
    if (row_groups == 2 && problem.group_in() <= kRows) continue;
    if (kTiles[row].loose) {
      look({row, row_groups, static_cast<int>(h.in), 0, 1});
      continue;
    }
    std::vector<int> heights;
    for (int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 24, 32, 64})
      add_once(heights, std::min(rows, h.in));
    for (int rows : heights) {
      // Boxes of x start at whole 16 bytes.
      if (rows == h.in || rows * w.in * size % 16 == 0) look({row, row_groups, rows, 0, 1});
      if (w.in * size % 16 == 0)
        for (int tiles : {1, 2, 3, 4})
          if (tiles == 1 || (tiles - 1) * pixels < w.in) look({row, row_groups, rows, tiles, 1});
    }
  }
  return found.empty() ? few_stages : found;
}

Plan plan_of(const Problem& problem, const Device& device, const Choice& choice) {
  Params p;
  shape(problem, choice, p);
  find_stages(device, kTiles[choice.row], p);
  Plan plan = weight_sum_plan(problem, device, choice.row, choice.split,
                              predict(problem, device, p, kTiles[choice.row]), kLaunch);
  const int detail[] = {choice.row_groups, choice.band_rows, choice.band_tiles, p.stages};
  std::copy(std::begin(detail), std::end(detail), plan.detail);
  const auto number = [](int64_t value) { return std::to_string(value); };
  plan.note = number(columns(kTiles[choice.row])) + " columns, " + number(p.row_groups * kRows) +
              " channels, bands of " + number(p.band_rows) + " rows" +
              (p.flat ? "" : " x " + number(p.band_tiles) + " tiles") + ", " + number(p.stages) +
              " stages, split " + number(p.split) + ", " + number(blocks_of(p)) + " blocks";
  return plan;
}

std::string refusal(const Problem& problem, const Device& device) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  const Axis &h = problem.h, &w = problem.w;
  if (!device.has_wgmma) return "fringe is for sm_90a";
  if (problem.direction != Direction::grad_weight) return "fringe is for grad_weight";
  if (problem.dtype == DType::f64 || is_strict(problem)) return "fringe is for fp16, bf16 and TF32";
  if (problem.x_layout != Layout::nchw || problem.y_layout != Layout::nchw ||
      problem.w_layout != Layout::nchw)
    return "fringe is for NCHW";
  if (h.kernel * w.kernel > kMostColumns || columns_of(problem) > kMostColumns)
    return number(h.kernel * w.kernel) + " taps of " + number(problem.group_out()) +
           " output channels are more than " + number(kMostColumns) + " columns";
  const int64_t size = static_cast<int64_t>(element_size(problem.dtype));
  if (is_loose(problem)) {
    if (std::string reason = loose_refusal(problem); !reason.empty()) return reason;
  } else {
    if (w.out * size % 16 != 0)
      return "rows of dY, " + number(w.out * size) + " bytes, are no whole vectors";
    if (h.in * w.in * size % 16 != 0)
      return "planes of x, " + number(h.in * w.in * size) + " bytes, are no whole vectors";
  }
  if (problem.wide_index) return "a tensor has more than 2^31 elements";
  // From a row of x to its lines, outside of dY as well, 32 bits hold it.
  for (const Axis& axis : {h, w})
    if (std::abs(axis.near_pad) + axis.in * axis.stride + axis.kernel * axis.dilation >
        INT32_MAX / 8)
      return "taps lie too far apart";
  return sums_too_short(problem, kLeastWgmmaTerms);
}

}  // namespace

int64_t blocks_of(const Params& params) { return combinations(params) * params.split; }

std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason) {
  return all_plans(problem, device, reason, refusal, on_reference(candidates),
                   at_hand(device, plan_of));
}

Decision plan(const Problem& problem, const Device& device) {
  return best_plan(problem, device, refusal, on_reference(candidates), at_hand(device, plan_of));
}

Params params_of(const Problem& problem, const Plan& plan, const Args& args) {
  Params p;
  shape(problem, {plan.row, plan.detail[0], plan.detail[1], plan.detail[2], plan.split}, p);
  set_stages(plan.detail[3], kTiles[plan.row], p);
  set_weight_tensors(args, p);
  return p;
}

Maps maps_of(const Problem& problem, const Params& p) {
  const int64_t size = static_cast<int64_t>(element_size(problem.dtype));
  // A plane whose pixels follow each other is one row of them.
  const int64_t x_h = p.flat ? 1 : p.x_h, x_w = p.flat ? int64_t{p.x_h} * p.x_w : p.x_w;
  const int64_t y_row = int64_t{p.y_w} * size, y_plane = y_row * p.y_h;
  const int64_t rows = int64_t{p.groups} * p.rows, columns = int64_t{p.groups} * p.columns;
  const bool rounded = size == 4;
  Maps maps;
  if (p.classes) {
    const int64_t plane = int64_t{p.x_h} * p.x_w, together = p.classes * plane;
    maps.x = encode({p.x,
                     2,
                     4,
                     {together, rows / p.classes, p.batch, 1},
                     {2, together * 2, rows * plane * 2, rows * plane * 2 * p.batch},
                     {kLooseRow / 2, p.class_rows, 1, 1},
                     {1, 1, 1, 1},
                     false,
                     false});
    maps.y = encode({p.y,
                     4,
                     4,
                     {y_plane / 4, columns, p.batch, 1},
                     {4, y_plane, columns * y_plane, columns * y_plane * p.batch},
                     {p.raw_words, p.columns, 1, 1},
                     {1, 1, 1, 1},
                     false,
                     false});
    return maps;
  }
  maps.x = encode({p.x,
                   static_cast<int>(size),
                   4,
                   {x_w, rows, x_h, p.batch},
                   {size, x_h * x_w * size, x_w * size, rows * x_h * x_w * size},
                   {static_cast<int32_t>(kRow / size), p.box_rows, 1, 1},
                   {1, 1, 1, 1},
                   true,
                   rounded});
  maps.y = encode({p.y,
                   4,
                   4,
                   {y_row / 4, p.y_h, columns, p.batch},
                   {4, y_row, y_plane, columns * y_plane},
                   {p.line_bytes / 4, p.lines, p.columns, 1},
                   {1, 1, 1, 1},
                   false,
                   rounded});
  return maps;
}

}  // namespace convt2d::cuda::fringe
