#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/forms.h"
#include "cuda/gather_params.h"
#include "cuda/spread/spread_input.h"
#include "cuda/strict_sums.h"
#include "cuda/tensor_map.h"

namespace convt2d::cuda::spread {
namespace {

constexpr double kClock = 1700;  // cycles a microsecond

// What things cost, in cycles where nothing else is said: counted by hand.
constexpr double kLaunch = 12;        // us
constexpr double kStart = 2000;       // of a tile: until its first panel is there
constexpr double kPanel = 80;         // of a panel and block of channels: barriers
constexpr double kTensor = 1.25;      // times what an instruction takes
constexpr double kStore = 700;        // of 64 pixels and a block of channels
constexpr double kShort = 600;        // of a block of channels, if less than four stages bring it
constexpr double kBatch = 700;        // of the pixels that a warp has under way
constexpr double kPixel = 12;         // of a pixel of a panel and warp
constexpr double kNumber = 12;        // more, of each load of it
constexpr double kL2Bytes = 30;       // a cycle
constexpr double kMemoryRate = 0.75;  // of the copy rate
constexpr double kBeside = 0.25;      // of the lesser of work and bytes
// Work over what is counted (2026-11-24), where channels are dealt to lanes, and where they are not.
constexpr double kDealtOver = 1.45, kOver = 1.9;

struct Choice {
  int row;  // of kInputTiles
  int slots, stages, walkers;
};

// Everything that follows from the problem and the choice, pointers aside. The refusal has seen to limits.
void shape(const Problem& problem, const Choice& choice, InputParams& p) {
  const InputTile tile = kInputTiles[choice.row];
  p = {};
  set_extents(problem, p);
  p.x_h = static_cast<int32_t>(problem.h.in);
  p.x_w = static_cast<int32_t>(problem.w.in);
  set_geometry(problem, p);
  p.number_bytes = static_cast<int32_t>(element_size(problem.dtype));
  p.pixels = p.batch * p.x_h * p.x_w;
  p.kernel_row = p.kernel_w * p.reduce;
  p.depth = p.kernel_h * p.kernel_row;
  p.y_row = p.y_w * p.reduce;
  p.step = p.stride_w * p.reduce;
  p.lead = p.pad_w * p.reduce;
  p.in_words = p.number_bytes == 2 && p.kernel_row % 2 == 0 && p.y_row % 2 == 0 &&
               p.step % 2 == 0 && p.lead % 2 == 0;
  p.by_plane = FastDivide(p.x_h * p.x_w);
  p.by_row = FastDivide(p.x_w);
  p.by_kernel_row = FastDivide(p.kernel_row);
  const int32_t numbers = line_numbers(p.number_bytes);
  p.panels = static_cast<int32_t>(ceil_div(p.depth, numbers));
  p.last_slices =
      static_cast<int32_t>(ceil_div(p.depth - (p.panels - 1) * numbers, numbers / kSlices));
  p.column_blocks = static_cast<int32_t>(ceil_div(p.columns, kInputWidth));
  p.order = p.columns % dealt_row(p.number_bytes) == 0 ? kDealtOut
            : p.columns % 2 == 0                       ? kPairs
                                                       : kSingle;
  p.tiles = static_cast<int32_t>(ceil_div(p.pixels, tile_pixels(tile)));
  p.walkers = std::min(choice.walkers, p.tiles);
  p.stages = choice.stages;
  p.slots = choice.slots;
  SharedPlaces places{kInputHeader};
  p.panels_at = places.take(int64_t{p.slots} * tile_pixels(tile) * kLine, 1024);
  p.stages_at = places.take(int64_t{p.stages} * kInputStage, 1024);
  p.shared_bytes = static_cast<int32_t>(places.end);
}

double predict(const Problem& problem, const Device& device, const InputParams& p, InputTile tile) {
  const double slices = (p.panels - 1) * kSlices + p.last_slices;
  const double blocks = kGroups * tile.blocks;
  const double tensor_core =
      p.column_blocks * (kTensor * slices * blocks * kInputWidth / 2 + p.panels * kPanel);
  const double store =
      p.column_blocks * tile.blocks * kStore + p.column_blocks * (p.stages < 4 ? kShort : 0);
  const double fours = std::ceil(tile_pixels(tile) / 4.0 / kWriters);
  const double numbers = p.number_bytes == 2 && !p.in_words ? 2 : 1;
  const double write =
      p.panels * (std::ceil(fours / kFours) * kBatch + fours * 4 * (kPixel + kNumber * numbers));
  const double bring = double(p.column_blocks) * p.panels * kInputStage / kL2Bytes;
  // A panel is written while those behind it are read for the last time, and earlier if there is room.
  const double room = double(p.slots - p.panels) / p.panels;
  const double waits = std::max(0., write * (1 - room) - tensor_core / p.column_blocks);
  const double tile_cycles = std::max({tensor_core + store + waits, bring, write}) + kStart;
  const double busy_us = std::ceil(double(p.tiles) / p.walkers) * tile_cycles / kClock;
  const double memory_us = tensor_bytes(problem) / (kMemoryRate * device.copy_bytes_per_us) *
                           (p.order == kDealtOut ? 1
                            : p.order == kPairs  ? 1.3
                                                 : 2);
  const double over = p.order == kDealtOut ? kDealtOver : kOver;
  return kLaunch + std::max(over * busy_us, memory_us) + kBeside * std::min(busy_us, memory_us);
}

std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason) {
  std::vector<Candidate<Choice>> found;
  for (int row = 0; row < kInputTileCount; ++row) {
    Choice choice = {row, 0, 2, device.sm_count};
    InputParams p;
    shape(problem, choice, p);
    const int panel = tile_pixels(kInputTiles[row]) * kLine;
    for (int stages = 2; stages <= kMostInputStages; ++stages) {
      const int room = (device.smem_optin - 2048 - stages * kInputStage) / panel;
      if (p.panels > room) {
        if (stages == 2)
          reason = std::to_string(p.depth) + " products of a sum are too many for shared memory";
        break;
      }
      choice.stages = stages;
      choice.slots = std::min({room, 2 * p.panels, kMostSlots});
      shape(problem, choice, p);
      found.push_back({choice, predict(problem, device, p, kInputTiles[row])});
    }
  }
  return found;
}

Plan plan_of(const Problem& problem, const Candidate<Choice>& candidate) {
  const Choice& c = candidate.choice;
  InputParams p;
  shape(problem, c, p);
  Plan plan;
  plan.row = c.row;
  plan.predicted_us = candidate.predicted_us;
  const int detail[] = {c.slots, c.stages, c.walkers};
  std::copy(std::begin(detail), std::end(detail), plan.detail);
  plan.note = std::to_string(tile_pixels(kInputTiles[c.row])) + " pixels x " +
              std::to_string(p.column_blocks) + " blocks of channels" +
              (p.order == kDealtOut ? " dealt" : "") + ", K " + std::to_string(p.depth) + " in " +
              std::to_string(p.panels) + " of " + std::to_string(p.slots) + " panels" +
              (p.in_words ? " of words" : "") + ", " + std::to_string(p.stages) + " stages, " +
              std::to_string(p.tiles) + " tiles of " + std::to_string(p.walkers) + " blocks";
  return plan;
}

std::string refusal(const Problem& problem, const Device& device) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  if (!device.has_wgmma) return "no wgmma (sm_90a)";
  if (problem.direction != Direction::grad_input) return "spread has no grad_weight";
  if (problem.dtype == DType::f64 || is_strict(problem)) return "spread is for fp16, bf16 and TF32";
  if (problem.x_layout != Layout::nhwc || problem.y_layout != Layout::nhwc ||
      problem.w_layout != Layout::nhwc)
    return "spread is for NHWC";
  if (is_matrix(problem)) return "a product of matrices";
  if (problem.groups > 1) return "spread takes one group, not " + number(problem.groups);
  if (problem.w.dilation != 1) return "spread takes no dilation";
  const int64_t depth = problem.h.kernel * problem.w.kernel * problem.out_channels;
  if (depth * element_size(problem.dtype) % 16 != 0)
    return "a channel's " + number(depth) + " weights are not whole 16 bytes";
  if (depth * element_size(problem.dtype) > kMostPanels * kLine)
    return number(depth) + " products of a sum are too many";
  if (problem.wide_index) return "a tensor has more than 2^31 elements";
  return {};
}

}  // namespace

std::vector<Plan> input_plans(const Problem& problem, const Device& device, std::string& reason) {
  return all_plans(problem, device, reason, refusal, candidates, plan_of);
}

Decision input_plan(const Problem& problem, const Device& device) {
  return best_plan(problem, device, refusal, candidates, plan_of);
}

InputParams input_params_of(const Problem& problem, const Plan& plan, const Args& args) {
  InputParams p;
  shape(problem, {plan.row, plan.detail[0], plan.detail[1], plan.detail[2]}, p);
  set_tensors(problem, args, p);
  return p;
}

// Rows of channels; or, dealt to columns, axis by axis: the two of a word, a row's four lanes, words of 16 bytes.
CUtensorMap input_map_of(const InputParams& p) {
  const int32_t numbers = line_numbers(p.number_bytes);
  const int64_t row = int64_t{p.depth} * p.number_bytes;
  if (p.order != kDealtOut)
    return encode({p.weight,
                   p.number_bytes,
                   4,
                   {p.depth, p.columns, 1, 1},
                   {p.number_bytes, row, row, row},
                   {numbers, kInputWidth, 1, 1},
                   {1, 1, 1, 1}});
  const int32_t dealt = dealt_channels(p.number_bytes), all = dealt_row(p.number_bytes);
  return encode({p.weight,
                 p.number_bytes,
                 5,
                 {p.depth, 2, 4, dealt / 2, p.columns / all},
                 {p.number_bytes, row, dealt * row, 2 * row, all * row},
                 {numbers, 2, 4, dealt / 2, kInputWidth / all},
                 {1, 1, 1, 1, 1}});
}

}  // namespace convt2d::cuda::spread
