// Which tiles of packed grad_weight fit a problem, their predicted times, and what a kernel is told of one.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/phases.h"
#include "cuda/cuda_families.h"
#include "cuda/gather_params.h"
#include "cuda/hopper/hopper_packed_weight.h"
#include "cuda/hopper/hopper_weight_shape.h"
#include "cuda/tensor_map.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda::hopper {
namespace {

// As of hopper_weight_plan.cpp; what is `counted` was not fitted.
constexpr double kClock = 1700;      // cycles a microsecond
constexpr double kLaunch = 5.9;      // us
constexpr double kBlock = 10000;     // cycles, of a block beside its K tiles (counted)
constexpr double kL2Bytes = 38;      // a cycle (counted)
constexpr double kRest = 0.14;       // of what is less busy that is not hidden (counted)
constexpr double kMemoryRate = 0.9;  // of the copy rate
constexpr double kBeside = 0.23;     // of the lesser of work and bytes
constexpr double kPartialRate =
    1.6;  // times the copy rate's time, to write and to add up (counted)
constexpr double kLeastCycles =
    24;  // of the tensor core, for an instruction of few columns (counted)
constexpr double kCopiedLine = 40;     // a copy of a line, for the copy engine (counted)
constexpr double kWrittenPixel = 100;  // of columns, for the warp that writes them,
constexpr double kWrittenPass = 25;    // and 32 words of it; by 24 plans of kprcnn (2026-12-01)
constexpr double kWrittenTwice = 10;   // more, if they are of two words (counted)

constexpr int64_t kMostLines = 96 << 10;  // bytes of a tile's lines

struct Choice {
  int row;  // of kPackedWeightTiles
  int unit_rows;
  int tile_n, tile_h, tile_w;
  int stages, line_stages;
  int split;
};

int64_t combinations(const PackedWeightParams& p) { return int64_t{p.units} * p.row_blocks; }
int tile_pixels(const PackedWeightParams& p) { return p.tile_n * p.tile_h * p.tile_w; }

// Everything that follows from the problem and the choice, pointers and strides aside. Returns why it cannot be done, or
// an empty string.
std::string shape(const Problem& problem, const Choice& choice, PackedWeightParams& p) {
  const PackedWeightTile tile = kPackedWeightTiles[choice.row];
  const Axis &h = problem.h, &w = problem.w;
  const int64_t channels = problem.out_channels, row = w.out * channels;  // numbers
  p = {};
  p.piece_floats = static_cast<int32_t>(weight_bytes(problem) / 4);
  p.batch = static_cast<int32_t>(problem.batch);
  p.rows = static_cast<int32_t>(problem.in_channels);
  p.columns = static_cast<int32_t>(channels);
  p.x_h = static_cast<int32_t>(h.in);
  p.x_w = static_cast<int32_t>(w.in);
  set_geometry(problem, p);
  p.unit_rows = choice.unit_rows;
  p.units = static_cast<int32_t>(ceil_div(h.kernel, choice.unit_rows));
  p.row_blocks = static_cast<int32_t>(ceil_div(problem.in_channels, kPackedGroups * kCellChannels));
  set_tiles(problem, h.in, w.in, choice, p);
  p.stages = choice.stages;
  p.line_stages = choice.line_stages;
  p.split = choice.split;

  const bool together = w.dilation == 1 || w.kernel == 1;  // taps of a kernel row
  const int64_t numbers = together ? w.kernel * channels : channels, step = w.dilation * channels;
  p.segments = static_cast<int32_t>(together ? 1 : w.kernel);
  const bool alike =
      w.stride * channels % 2 == 0 && row % 2 == 0 && (together || step % 2 == 0);  // at words
  p.two_words = !alike;
  p.ahead = static_cast<int32_t>(alike ? w.near_pad * channels & 1 : 0);
  const int64_t columns = round_up(p.ahead + numbers, 2);
  if (choice.unit_rows * p.segments * columns > packed_columns(tile))
    return "a kernel row of " + std::to_string(w.kernel * channels) + " columns does not fit";
  p.segment_numbers = static_cast<int32_t>(numbers);
  p.segment_step = static_cast<int32_t>(step);
  p.segment_columns = static_cast<int32_t>(columns);

  if (tile_pixels(p) > kTilePixels) return "the tile has too many pixels";
  const int64_t reach = (w.kernel - 1) * w.dilation;
  const bool one_row = choice.tile_h == 1;
  p.line_step = static_cast<int32_t>(one_row ? h.dilation : 1);
  p.row_lines = static_cast<int32_t>(one_row ? 0 : h.stride);
  p.tap_lines = static_cast<int32_t>(one_row ? 1 : h.dilation);
  int64_t lines = (choice.tile_h - 1) * int64_t{p.row_lines} +
                  (choice.unit_rows - 1) * int64_t{p.tap_lines} + 1;
  int64_t line_numbers = ((choice.tile_w - 1) * w.stride + reach + 1) * channels;
  int64_t line = round_up(15 + line_numbers * 2, 16) + 16 + p.line_step * row * 2 % 16;
  p.one_run = p.line_step == 1 && row * 2 <= line;
  if (p.one_run) {
    line_numbers += (lines - 1) * row;
    line = row * 2;
  }
  const int64_t image =
      round_up(p.one_run ? 15 + line_numbers * 2 + 16 : lines * line, 16) + h.out * row * 2 % 16;
  if (p.one_run) lines = 1;
  if (choice.tile_n * image > kMostLines || choice.tile_h * h.stride > 4095 ||
      choice.tile_w * w.stride > 4095)
    return "a tile meets too much of dY";
  // Where a tile starts, outside of dY as well, is a number of 32 bits, in bytes too.
  if (((problem.batch + 1) * h.out + h.near_pad + h.kernel * h.dilation) * row * 2 > INT32_MAX / 2)
    return "dY has a GiB or more";
  p.reach_w = static_cast<int32_t>(reach);
  p.lines = static_cast<int32_t>(lines);
  p.line_numbers = static_cast<int32_t>(line_numbers);
  p.line_bytes = static_cast<int32_t>(line);
  p.image_bytes = static_cast<int32_t>(image);
  p.lines_bytes = static_cast<int32_t>(round_up(choice.tile_n * image + 16, 128));
  p.y_bytes = static_cast<int32_t>(problem.batch * h.out * row * 2);
  return {};
}

double predict(const Problem& problem, const Device& device, const PackedWeightParams& p,
               PackedWeightTile tile) {
  const double multiplied =
      tile.wide / 2.0 + (tile.narrow ? std::max(tile.narrow / 2.0, kLeastCycles) : 0);
  const double mma = kTileSteps * kPackedGroups * multiplied;
  const double passes = std::ceil(used_columns(p) / 64.0), pixels = tile_pixels(p);
  const double x_bytes = kPackedGroups * pixels * kRowBytes;
  const double line_bytes = double(p.tile_n) * p.lines * p.line_bytes;
  const double operands = 64 * (tile.narrow ? 2 : 1) + packed_columns(tile);  // rows of 32 bytes
  const double shared = kTileSteps * kPackedGroups * operands / 4 +
                        pixels * passes * (2 + p.two_words) + (x_bytes + line_bytes) / 128;
  const double l2 = (x_bytes + line_bytes) / kL2Bytes;
  const double ask = kCopiedLine * p.tile_n * p.lines;
  const double write = std::ceil(pixels / kPackedBuilders) *
                       (kWrittenPixel + passes * (kWrittenPass + kWrittenTwice * p.two_words));
  const double busiest = std::max({mma, shared, l2, ask, write});
  const double cycles = busiest + kRest * (mma + shared + l2 + ask + write - busiest);
  const double blocks = double(combinations(p)) * p.split;
  const double tiles = std::ceil(double(tiles_of(p)) / p.split);
  const double busy_us = std::ceil(blocks / device.sm_count) * (kBlock + tiles * cycles) / kClock;
  const double partial = static_cast<double>(partial_bytes(problem, p.split));
  const double memory_us =
      (read_bytes(problem) + partial) / (kMemoryRate * device.copy_bytes_per_us);
  return kLaunch + std::max(busy_us, memory_us) + kBeside * std::min(busy_us, memory_us) +
         kPartialRate * partial / device.copy_bytes_per_us;
}

// Parts of an axis that are as even as their number allows.
std::vector<int> even_parts(int64_t extent) {
  std::vector<int> found;
  for (int64_t part = std::min<int64_t>(extent, kTilePixels); part >= 1; --part)
    if (ceil_div(extent, ceil_div(extent, part)) == part) found.push_back(static_cast<int>(part));
  return found;
}

std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason) {
  std::vector<Candidate<Choice>> found;
  for (int row = 0; row < kPackedWeightTileCount; ++row) {
    const PackedWeightTile tile = kPackedWeightTiles[row];
    for (int tile_h : even_parts(problem.h.in))
      for (int tile_w : even_parts(problem.w.in)) {
        if (tile_h * tile_w > kTilePixels) continue;
        const int tile_n =
            static_cast<int>(std::min<int64_t>(problem.batch, kTilePixels / (tile_h * tile_w)));
        Choice choice{row, 1, tile_n, tile_h, tile_w, 2, 2, 1};
        PackedWeightParams p;
        if (std::string why = shape(problem, choice, p); !why.empty()) {
          reason = why;
          continue;
        }
        const int64_t rows =
            std::min<int64_t>(problem.h.kernel, packed_columns(tile) / used_columns(p));
        choice.unit_rows =
            static_cast<int>(ceil_div(problem.h.kernel, ceil_div(problem.h.kernel, rows)));
        if (std::string why = shape(problem, choice, p); !why.empty()) {
          reason = why;
          continue;
        }
        const int room = device.smem_optin - kPackedStagesAt, stage = packed_stage_bytes(tile);
        const int stages = std::min(4, (room - 2 * p.lines_bytes) / stage);
        if (stages < 2) {
          reason = "a tile's lines take " + std::to_string(p.lines_bytes) + " bytes";
          continue;
        }
        p.stages = choice.stages = stages;
        int lines = std::min(kMostLineStages, (room - stages * stage) / p.lines_bytes);
        // A team must not meet lines again before the other team has: it has met all tiles that were before the stages'.
        if (lines < stages && lines % kPackedTeams != 0) --lines;
        p.line_stages = choice.line_stages = lines;
        const int64_t combos = combinations(p);
        for (int split : splits_worth_trying(problem, combos, tiles_of(p), kTilePixels)) {
          p.split = choice.split = split;
          found.push_back({choice, predict(problem, device, p, tile)});
        }
      }
  }
  return found;
}

// A choice as a Plan, its time that on `device`; and back.
Plan plan_of(const Problem& problem, const Device& device, const Choice& c) {
  const PackedWeightTile tile = kPackedWeightTiles[c.row];
  PackedWeightParams p;
  shape(problem, c, p);
  Plan plan = weight_sum_plan(problem, device, kFirstPackedWeight + c.row, c.split,
                              predict(problem, device, p, tile), kLaunch);
  const int detail[] = {c.unit_rows, c.tile_n, c.tile_h, c.tile_w, c.stages, c.line_stages};
  std::copy(std::begin(detail), std::end(detail), plan.detail);
  plan.note = std::to_string(kPackedGroups * kCellChannels) + " channels x " +
              std::to_string(used_columns(p)) + " of " + std::to_string(packed_columns(tile)) +
              " packed columns, " + std::to_string(c.unit_rows) + " x " +
              std::to_string(p.kernel_w) + " taps, " + (p.two_words ? "of two words, " : "") +
              "tile " + std::to_string(c.tile_n) + "x" + std::to_string(c.tile_h) + "x" +
              std::to_string(c.tile_w) + " x " + std::to_string(c.stages) + " stages, " +
              std::to_string(c.line_stages) + " of lines, split " + std::to_string(c.split) + ", " +
              std::to_string(combinations(p) * c.split) + " blocks";
  return plan;
}

Choice choice_of(const Plan& plan) {
  const int32_t* d = plan.detail;
  return {plan.row - kFirstPackedWeight, d[0], d[1], d[2], d[3], d[4], d[5], plan.split};
}

std::string refusal(const Problem& problem, const Device&) {
  if (problem.wide_index) return "a tensor has more than 2^31 elements";
  if (problem.groups > 1) return "packed columns of groups";
  if (problem.in_channels % 8 != 0 || problem.out_channels % 8 == 0)
    return "columns are packed where input channels are whole vectors and output channels are not";
  if (problem.batch * problem.out_channels * problem.h.out * problem.w.out % 8 != 0)
    return "dY is no whole vectors";
  return "";
}

}  // namespace

std::vector<Plan> packed_weight_plans(const Problem& problem, const Device& device,
                                      std::string& reason) {
  return all_plans(problem, device, reason, refusal, on_reference(candidates),
                   at_hand(device, plan_of));
}

Decision packed_weight_plan(const Problem& problem, const Device& device) {
  return best_plan(problem, device, refusal, on_reference(candidates), at_hand(device, plan_of));
}

PackedWeightParams packed_weight_params(const Problem& problem, const Plan& plan,
                                        const Args& args) {
  PackedWeightParams p;
  shape(problem, choice_of(plan), p);
  p.weight = args.w.data;
  p.y = args.y.data;
  p.partials = p.split > 1 ? static_cast<float*>(args.workspace) : nullptr;
  for (int i = 0; i < 4; ++i) p.weight_stride[i] = static_cast<int32_t>(args.w.stride[i]);
  return p;
}

CUtensorMap packed_weight_map(const PackedWeightParams& p, const Args& args) {
  constexpr int kBytes = 2;
  const int64_t channels = p.rows, row = channels * p.x_w;
  return encode({args.x.data,
                 kBytes,
                 4,
                 {channels, p.x_w, p.x_h, p.batch},
                 {kBytes, channels * kBytes, row * kBytes, row * p.x_h * kBytes},
                 {kCellChannels, p.tile_w, p.tile_h, p.tile_n},
                 {1, 1, 1, 1}});
}

int64_t packed_weight_blocks(const PackedWeightParams& p) { return combinations(p) * p.split; }

}  // namespace convt2d::cuda::hopper
