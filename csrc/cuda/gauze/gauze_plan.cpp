#include "cuda/gauze/gauze_plan.h"

#include <algorithm>
#include <cmath>

#include "core/phases.h"
#include "cuda/cuda_families.h"
#include "cuda/gather_params.h"
#include "cuda/tensor_map.h"

namespace convt2d::cuda::gauze {
namespace {

// By times of 14 layers' plans in fp16 and TF32 on an H200 (2026-11-30): 1.1 times off in the mean. Found together. Cycles, and
// bytes a cycle of a multiprocessor.
constexpr double kClock = 1700;  // cycles a microsecond
constexpr double kCopied = 26;   // bytes of x and w
// Cycles of the copy engine: a row of a box, twice that if it starts elsewhere in 32 bytes, and each 128 bytes of it behind the first.
constexpr double kCopiedRow = 3.4, kCopiedLine = 0.6;
constexpr double kStored = 15;        // bytes of y
constexpr double kProduct = 16;       // the least that an instruction takes
constexpr double kStep = 225;         // of one warpgroup's step, whose words come meanwhile
constexpr double kTile = 800;         // of a tile beside products, though others multiply
constexpr double kWeights = 5200;     // of weights beside their bytes
constexpr double kLaunch = 4.6;       // us
constexpr double kMemoryRate = 0.85;  // of the copy rate
constexpr double kBeside = 0.03;      // of the lesser of work and bytes
constexpr int kLeastStages = 2, kWidths[] = {64, 32, 16};

struct Choice {
  int row, walkers, stages, width;
};

int number(int64_t value) { return static_cast<int>(value); }

// Bytes from channel to channel of a stage, an odd number of 32, so that banks do not meet; `lead` bytes before a strip, and its
// last pixels' neighbours behind it.
int pitch_of(int width, int size, int lead) {
  return number(ceil_div(lead + (width + 2) * size, 32) | 1) * 32;
}

// Bytes before a strip, of which shifts by -1 want one pixel: the copy engine starts at whole 16, and likes 32, if that takes no more.
int lead_of(int kernel, int width, int size) {
  if (first_shift(kernel) == 0) return 0;
  return pitch_of(width, size, 32) == pitch_of(width, size, 16) ? 32 : 16;
}

// All but pointers.
Params shape(const Problem& problem, const Choice& choice) {
  const Tile tile = kTiles[choice.row];
  const int size = number(element_size(problem.dtype));
  Params p{};
  set_extents(problem, p);
  p.x_h = number(problem.h.in), p.x_w = number(problem.w.in);
  p.y_h = number(problem.h.out), p.y_w = number(problem.w.out);
  p.width = choice.width;
  p.team_rows = kTeamPixels / p.width, p.rows = tile.teams * p.team_rows;
  const int64_t blocks = ceil_div(p.columns, tile.channels), strips = ceil_div(p.x_w, p.width),
                bands = ceil_div(p.x_h, p.rows);
  p.items =
      number(std::min<int64_t>(blocks * p.groups * strips * bands * problem.batch, INT32_MAX));
  p.walkers = choice.walkers;
  p.by_blocks = FastDivide(blocks), p.by_groups = FastDivide(p.groups);
  p.by_strips = FastDivide(strips), p.by_bands = FastDivide(bands);
  p.chunks = number(ceil_div(p.reduce, depth(size)));
  p.stages = choice.stages;
  const int lead = lead_of(tile.kernel, p.width, size);
  p.lead = lead / size;
  p.pitch = pitch_of(p.width, size, lead), p.row_bytes = depth(size) * p.pitch;
  p.stage_bytes = (p.rows + shifts(tile.kernel) - 1) * p.row_bytes;
  SharedPlaces places{kWeightsAt};
  places.take(int64_t{p.chunks} * kSlices * slice_bytes(tile), 16);
  p.stages_at = places.take(int64_t{p.stages} * p.stage_bytes, 128);
  p.shared_bytes = number(places.end);
  return p;
}

double predict(const Problem& problem, const Device& device, const Params& p, const Tile& tile) {
  const int size = number(element_size(problem.dtype)), pairs = shifts(tile.kernel);
  // Of a slice of a warpgroup: its instructions, what it fetches and what they read of weights, and how long it takes alone.
  const double products = taps(tile) * std::max(tile.channels / 2., kProduct),
               shared = pairs * pairs * 4 * 4 + slice_bytes(tile) / 128., chain = pairs * kStep;
  const double slices = double(p.chunks) * kSlices,
               multiplied = slices * std::max(tile.teams * std::max(products, shared), chain),
               row = (kCopiedRow + kCopiedLine * (ceil_div(p.pitch, 128) - 1)) *
                     (p.lead * size % 32 ? 2 : 1),
               copied = double(p.chunks) *
                        std::max(p.stage_bytes / kCopied, p.stage_bytes / p.pitch * row),
               stored = double(tile.teams) * kTeamPixels * kPhases *
                        std::min(tile.channels, p.columns) * size / kStored;
  const double item = std::max({multiplied, copied, stored}) + kTile;
  const double before = kWeights + slices * slice_bytes(tile) / kCopied;
  const double busy_us = (std::ceil(double(p.items) / p.walkers) * item + before) / kClock;
  const double memory_us = tensor_bytes(problem) / (kMemoryRate * device.copy_bytes_per_us);
  return kLaunch + std::max(busy_us, memory_us) + kBeside * std::min(busy_us, memory_us);
}

std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason) {
  std::vector<Candidate<Choice>> found;
  for (int row = 0; row < tiles_of(number(element_size(problem.dtype))); ++row)
    for (int width : kWidths) {
      if (kTiles[row].kernel != problem.h.kernel) continue;
      Choice choice{row, 1, 0, width};
      const Params bare = shape(problem, choice);
      choice.stages =
          std::clamp((device.smem_optin - bare.shared_bytes) / bare.stage_bytes, 0, kMostStages);
      if (choice.stages < kLeastStages) {
        reason = "no room for the weights of " + std::to_string(bare.reduce) +
                 " input channels a group and " + std::to_string(kLeastStages) + " stages";
        continue;
      }
      // A block has the same channels in all its tiles.
      const int same = number(bare.by_blocks.divisor * bare.by_groups.divisor);
      if (same > device.sm_count) {
        reason = std::to_string(same) + " groups and blocks of channels are more than " +
                 std::to_string(device.sm_count) + " multiprocessors";
        continue;
      }
      choice.walkers = std::min(bare.items, device.sm_count / same * same);
      const Params p = shape(problem, choice);
      found.push_back({choice, predict(problem, device, p, kTiles[row])});
    }
  return found;
}

Plan plan_of(const Problem& problem, const Candidate<Choice>& candidate) {
  const Choice& c = candidate.choice;
  const Tile& tile = kTiles[c.row];
  Plan plan;
  plan.row = c.row;
  plan.predicted_us = candidate.predicted_us;
  plan.detail[0] = c.walkers;
  plan.detail[1] = c.stages;
  plan.detail[2] = c.width;
  plan.note = std::to_string(tile.channels) + " channels x " +
              std::to_string(shape(problem, c).rows) + " rows of " + std::to_string(c.width) +
              " pixels of " + std::to_string(tile.teams) + " warpgroups, " +
              std::to_string(c.stages) + " stages, " + std::to_string(c.walkers) + " blocks";
  return plan;
}

std::string refusal(const Problem& problem, const Device& device) {
  const auto text = [](int64_t value) { return std::to_string(value); };
  const Axis &h = problem.h, &w = problem.w;
  const int64_t size = element_size(problem.dtype);
  if (!device.has_wgmma) return "gauze is for sm_90a";
  if (problem.direction != Direction::fwd) return "gauze is for forward";
  if (size != 2 && !(problem.dtype == DType::f32 && problem.precision == Precision::tf32))
    return "gauze is for fp16, bf16 and TF32";
  if (problem.x_layout != Layout::nchw || problem.y_layout != Layout::nchw ||
      problem.w_layout != Layout::nchw)
    return "gauze is for NCHW";
  for (const Axis& axis : {h, w})
    if ((axis.kernel != 3 && axis.kernel != 4) || axis.kernel != h.kernel ||
        axis.stride != kStride || axis.dilation != 1 || axis.near_pad != kPad)
      return "gauze is for kernels of 3 x 3 and 4 x 4 with stride 2 and padding 1";
  if (w.out != w.in * kStride)
    return "rows of y have " + text(w.out) + " columns, which are not twice the " + text(w.in) +
           " of x";
  if (h.out > h.in * kStride)
    return "y has " + text(h.out) + " rows, more than twice the " + text(h.in) + " of x";
  if (w.in % kWarpPixels != 0)
    return "rows of x have " + text(w.in) + " pixels, which are no sixteens";
  if (problem.group_out() * h.kernel * w.kernel * size % 16 != 0)
    return "a channel's " + text(problem.group_out() * h.kernel * w.kernel) +
           " weights are no whole 16 bytes";
  if (problem.wide_index) return "a tensor has more than 2^31 elements";
  return {};
}

}  // namespace

std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason) {
  return all_plans(problem, device, reason, refusal, candidates, plan_of);
}

Decision plan(const Problem& problem, const Device& device) {
  return best_plan(problem, device, refusal, candidates, plan_of);
}

Params params_of(const Problem& problem, const Plan& plan, const Args& args) {
  Params p = shape(problem, {plan.row, plan.detail[0], plan.detail[1], plan.detail[2]});
  p.y = args.y.data, p.x = args.x.data, p.w = args.w.data;
  p.bias = problem.has_bias ? args.bias : nullptr;
  return p;
}

Maps maps_of(const Problem& problem, const Params& p, const Args& args) {
  // A box is rows of channels: pixel, channel, row, image and group.
  const int size = number(element_size(problem.dtype));
  const int64_t row = int64_t{p.x_w} * size, channel = row * p.x_h;
  return {encode({args.x.data,
                  size,
                  4,
                  {p.x_w, p.reduce, p.x_h, problem.batch * p.groups},
                  {size, channel, row, channel * p.reduce},
                  {p.pitch / size, depth(size), p.stage_bytes / p.row_bytes, 1},
                  {1, 1, 1, 1},
                  false})};
}

}  // namespace convt2d::cuda::gauze
