// Which tiles of NCHW grad_weight fit a problem, their predicted times, and what a kernel is told of one.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/phases.h"
#include "cuda/cuda_families.h"
#include "cuda/direct/direct.h"
#include "cuda/gather_params.h"
#include "cuda/hopper/hopper_nchw_weight.h"
#include "cuda/strict_sums.h"
#include "cuda/tensor_map.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda::hopper {
namespace {

// Fitted to 1075 times on the H200 (kernel_bench sweep of bench/layers.json, fp16 and tf32; 2026-11-22): half of them are
// within 8 %.
constexpr double kClock = 1700;         // cycles a microsecond
constexpr double kLaunch = 11.1;        // us
constexpr double kBlock = 4650;         // cycles, of a block beside its K tiles
constexpr double kStored = 52;          // a sum of each thread, on its way out
constexpr double kFetchedHalf = 66;     // a slice of the first operand, 16-bit numbers
constexpr double kFetchedWord = 37;     // or words
constexpr double kStrict = 1.12;        // strict fp32, over what its multiplications take
constexpr double kL2Bytes = 38;         // a cycle
constexpr double kRest = 0.121;         // of what is less busy that is not hidden
constexpr double kMemoryRate = 0.9;     // of the copy rate
constexpr double kBeside = 0.038;       // of the lesser of work and bytes
constexpr double kPartialRate = 2.3;    // times the copy rate's time, to write and to add up
constexpr double kScatteredRate = 1.2;  // the same of dW's numbers, each in a sector of its own

struct Choice {
  int row;                  // of kNchwWeightTiles
  int y_blocks, unit_taps;  // see NchwWeightParams
  bool runs;
  int stages;
  int split;  // pieces of the reduction
};

int64_t combinations(const NchwWeightParams& p) {
  return int64_t{p.groups} * p.row_blocks * p.column_blocks * p.kernel_h * p.units_w;
}
int64_t k_tiles(const NchwWeightParams& p) { return int64_t{p.batch} * p.image_tiles; }

// Everything that follows from the problem and the choice, pointers and strides aside. Returns why it cannot be done, or
// an empty string.
std::string shape(const Problem& problem, const Choice& choice, NchwWeightParams& p) {
  const NchwWeightTile tile = kNchwWeightTiles[choice.row];
  const int64_t size = static_cast<int64_t>(element_size(problem.dtype)), vector = 16 / size;
  const Axis &h = problem.h, &w = problem.w;
  const int64_t pixels = kKRow / size;
  p = {};
  p.piece_floats = static_cast<int32_t>(weight_bytes(problem) / 4);
  p.batch = static_cast<int32_t>(problem.batch);
  p.groups = static_cast<int32_t>(problem.groups);
  p.rows = static_cast<int32_t>(problem.group_in());
  p.columns = static_cast<int32_t>(problem.group_out());
  p.x_h = static_cast<int32_t>(h.in);
  p.x_w = static_cast<int32_t>(w.in);
  p.y_h = static_cast<int32_t>(h.out);
  p.y_w = static_cast<int32_t>(w.out);
  p.stride_h = static_cast<int32_t>(h.stride);
  p.stride_w = static_cast<int32_t>(w.stride);
  p.pad_h = static_cast<int32_t>(h.near_pad);
  p.pad_w = static_cast<int32_t>(w.near_pad);
  p.dilation_h = static_cast<int32_t>(h.dilation);
  p.dilation_w = static_cast<int32_t>(w.dilation);
  p.kernel_h = static_cast<int32_t>(h.kernel);
  p.kernel_w = static_cast<int32_t>(w.kernel);
  p.element_bytes = static_cast<int32_t>(size);
  p.unit_taps = choice.unit_taps;
  p.y_blocks = choice.y_blocks;
  p.units_w = static_cast<int32_t>(ceil_div(w.kernel, choice.unit_taps));
  p.row_blocks = static_cast<int32_t>(ceil_div(p.rows, tile.width));
  p.column_blocks = static_cast<int32_t>(ceil_div(p.columns, choice.y_blocks * kOutChannels));
  p.stages = choice.stages;
  p.split = choice.split;
  p.runs = choice.runs;
  if (w.out % vector != 0) return "rows of dY are not whole vectors";
  if (h.stride > kMostStep) return "the copy engine steps over 7 rows at most";
  if (choice.runs ? h.in * w.in % vector != 0 : w.in % vector != 0)
    return "planes or rows of x are not whole vectors";
  p.row_tiles = static_cast<int32_t>(ceil_div(w.in, pixels));
  p.image_tiles =
      static_cast<int32_t>(choice.runs ? ceil_div(h.in * w.in, pixels) : h.in * p.row_tiles);
  const int64_t columns = choice.runs ? w.in : std::min(w.in, pixels);
  const int64_t rows = !choice.runs         ? 1
                       : pixels % w.in == 0 ? pixels / w.in
                                            : (pixels + w.in - 2) / w.in + 1;
  const int64_t span = (columns - 1) * w.stride + (choice.unit_taps - 1) * w.dilation + 1;
  // An odd number of 16 bytes, so that neighbouring channels lie in different banks.
  const int64_t patch = (ceil_div(vector - 1 + span, vector) | 1) * vector;
  p.patch_rows = static_cast<int32_t>(std::min(rows, h.in));
  if (patch > kMostSpan || (p.patch_rows - 1) * h.stride + 1 > kMostSpan)
    return "a tile is too long for the copy engine";
  p.patch_row = static_cast<int32_t>(patch * size);
  return {};
}

double predict(const Problem& problem, const Device& device, const NchwWeightParams& p,
               NchwWeightTile tile) {
  const bool half = p.element_bytes == 2;
  const double instructions = double(kKSlices) * kNchwGroups * tile.instructions;
  const double products = tile.strict ? 3 : 1;
  const double mma = instructions * products * tile.width / 2;
  // Loads of the first operand by four warps, the second operand, copies.
  const double stage = stage_bytes(p, tile);
  const double shared =
      instructions * ((half ? 32 : 16) + products * tile.width / 4.0) + stage / 128;
  const double fetch = instructions * (half ? kFetchedHalf : kFetchedWord);
  const double l2 = copied_bytes(p, tile) / kL2Bytes;
  const double busiest = std::max({mma, shared, fetch, l2});
  const double cycles =
      (busiest + kRest * (mma + shared + fetch + l2 - busiest)) * (tile.strict ? kStrict : 1);
  const double blocks = double(combinations(p)) * p.split;
  const double tiles = std::ceil(double(k_tiles(p)) / p.split);
  const double stored = kStored * tile.width / 2 * tile.instructions;
  const double busy_us =
      std::ceil(blocks / device.sm_count) * (kBlock + stored + tiles * cycles) / kClock;
  const double partial = static_cast<double>(partial_bytes(problem, p.split));
  const double scattered =
      p.split > 1 ? 0 : 32.0 * p.rows * p.groups * p.columns * p.kernel_h * p.kernel_w;
  const double memory_us =
      (tensor_bytes(problem) + partial) / (kMemoryRate * device.copy_bytes_per_us);
  return kLaunch + std::max(busy_us, memory_us) + kBeside * std::min(busy_us, memory_us) +
         (kPartialRate * partial + kScatteredRate * scattered) / device.copy_bytes_per_us;
}

// Every tile that fits, in no order: the same for all devices. `reason` says why there is none.
std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason) {
  std::vector<Candidate<Choice>> found;
  const bool strict = is_strict(problem);
  for (int row = 0; row < kNchwWeightTileCount; ++row) {
    const NchwWeightTile tile = kNchwWeightTiles[row];
    if (tile.strict != strict) continue;
    const int cells = kNchwGroups * tile.instructions;
    for (int y_blocks = 1; y_blocks <= cells; y_blocks *= 2)
      for (bool runs : {false, true}) {
        if ((y_blocks - 1) * kOutChannels >= problem.group_out()) continue;
        Choice choice{row, y_blocks, cells / y_blocks, runs, 2, 1};
        NchwWeightParams p;
        if (std::string why = shape(problem, choice, p); !why.empty()) {
          reason = why;
          continue;
        }
        const int bytes = stage_bytes(p, tile);
        const int stages = (device.smem_optin - kNchwStagesAt - kNchwReach) / bytes;
        if (stages < 2) {
          reason = "a K tile takes " + std::to_string(bytes) + " bytes of shared memory";
          continue;
        }
        p.stages = choice.stages = std::min(stages, kMostNchwStages);
        const int64_t combos = combinations(p), tiles = k_tiles(p);
        if (combos > INT32_MAX || tiles > INT32_MAX) {
          reason = "dW or x has too many tiles";
          continue;
        }
        for (int split : splits_worth_trying(problem, combos, tiles, tile_pixels(p))) {
          p.split = choice.split = split;
          found.push_back({choice, predict(problem, device, p, tile)});
        }
      }
  }
  return found;
}

// A choice as a Plan, its time that on `device`; and back.
Plan plan_of(const Problem& problem, const Device& device, const Choice& c) {
  const NchwWeightTile tile = kNchwWeightTiles[c.row];
  NchwWeightParams p;
  shape(problem, c, p);
  Plan plan;
  plan.row = c.row;
  plan.split = c.split;
  plan.workspace_bytes = partial_bytes(problem, p.split);
  plan.predicted_us = predict(problem, device, p, tile);
  add_grad_bias(problem, device, kLaunch, plan);
  const int detail[] = {c.y_blocks, c.unit_taps, c.runs, c.stages};
  std::copy(std::begin(detail), std::end(detail), plan.detail);
  plan.note = std::to_string(c.y_blocks * kOutChannels) + " x " + std::to_string(tile.width) +
              " channels, " + std::to_string(c.unit_taps) + " taps, dY fetched, " +
              (c.runs ? "runs" : "rows") + " of " + std::to_string(tile_pixels(p)) + " pixels x " +
              std::to_string(c.stages) + " stages, split " + std::to_string(c.split) + ", " +
              std::to_string(combinations(p) * c.split) + " blocks";
  return plan;
}

Choice choice_of(const Plan& plan) {
  const int32_t* d = plan.detail;
  return {plan.row, d[0], d[1], d[2] != 0, d[3], plan.split};
}

}  // namespace

std::vector<Plan> nchw_weight_plans(const Problem& problem, const Device& device,
                                    std::string& reason) {
  std::vector<Plan> plans;
  for (const Candidate<Choice>& one : candidates(problem, invented_device(kReferenceGpu), reason))
    plans.push_back(plan_of(problem, device, one.choice));
  return plans;
}

Decision nchw_weight_plan(const Problem& problem, const Device& device) {
  if (problem.wide_index) return Decision::decline("a tensor has more than 2^31 elements");
  std::string reason = "no tile fits";
  const std::vector<Candidate<Choice>> found =
      candidates(problem, invented_device(kReferenceGpu), reason);
  if (found.empty()) return Decision::decline(reason);
  return Decision::accept(plan_of(problem, device, cheapest(found).choice));
}

NchwWeightParams nchw_weight_params(const Problem& problem, const Plan& plan, const Args& args) {
  NchwWeightParams p;
  shape(problem, choice_of(plan), p);
  p.weight = args.w.data;
  p.partials = p.split > 1 ? static_cast<float*>(args.workspace) : nullptr;
  for (int i = 0; i < 4; ++i) p.weight_stride[i] = static_cast<int32_t>(args.w.stride[i]);
  return p;
}

// Pixels of x are a K tile's rows; of dY, a block of output channels and the rows that they meet.
NchwWeightMaps nchw_weight_maps(const NchwWeightParams& p, int row, const Args& args) {
  const int64_t size = p.element_bytes;
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
  TensorBox of_x = planes(args.x.data, int64_t{p.groups} * p.rows, p.x_h, p.x_w);
  if (p.runs) {
    of_x.extent[0] *= p.x_h, of_x.extent[1] = 1;
    of_x.stride[1] = of_x.stride[2];
  }
  of_x.count[0] = tile_pixels(p);
  of_x.count[2] = kNchwWeightTiles[row].width;
  // Channels lie between the rows of a patch.
  TensorBox of_y = planes(args.y.data, int64_t{p.groups} * p.columns, p.y_h, p.y_w);
  std::swap(of_y.extent[1], of_y.extent[2]);
  std::swap(of_y.stride[1], of_y.stride[2]);
  of_y.count[0] = p.patch_row / p.element_bytes;
  of_y.count[1] = kOutChannels;
  of_y.count[2] = p.patch_rows;
  of_y.step[2] = p.stride_h;
  of_y.swizzled = false;
  of_x.rounded = of_y.rounded = !kNchwWeightTiles[row].strict;
  return {encode(of_x), encode(of_y)};
}

int64_t nchw_weight_blocks(const NchwWeightParams& p) { return combinations(p) * p.split; }

}  // namespace convt2d::cuda::hopper
