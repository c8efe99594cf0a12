// mite, grad_weight: what a choice amounts to, and how long it should take.
#include <algorithm>
#include <cmath>

#include "core/phases.h"
#include "cuda/mite/mite_plan.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda::mite {
namespace {

// Counted; what is dated was measured.
constexpr double kClock = 1700;      // cycles a microsecond
constexpr double kLaunch = 4.5;      // us, the way in and out
constexpr double kRound = 0.9;       // us that memory takes to answer
constexpr double kBlock = 250;       // instructions of a warp beside
constexpr double kNumber = 16;       // those for a number of a tile,
constexpr double kPixel = 14;        // a pixel, beside multiplying,
constexpr double kItem = 80;         // an item,
constexpr double kLanes = 5;         // and a sum of a lane of it
constexpr double kUsed = 0.6;        // of the instructions that a multiprocessor could start
constexpr double kPixelWait = 60;    // cycles of a warp from one pixel to the next
constexpr double kMemoryRate = 0.7;  // of the copy rate
constexpr double kBeside = 0.3;      // of the lesser of work and bytes
constexpr double kSum = 2.2;         // us, the second pass, and for pieces that its threads add up
// Work over what is counted, in 16 bits and in words (flownet_flow, groups_of_4, 2026-11-24).
constexpr double kHalves = 2, kWords = 1.2;
constexpr double kPieces = 160, kPiecesTime = 0.6;
constexpr int64_t kMostPieces = 2048;

}  // namespace

std::string shape_weight(const Problem& problem, const Choice& choice, WeightParams& p) {
  p = {};
  const Axis &h = problem.h, &w = problem.w;
  const Sums sums = kSums[choice.row];
  const auto number = [](int64_t value) { return static_cast<int32_t>(value); };
  const auto text = [](int64_t value) { return std::to_string(value); };
  const int64_t patch_h = (choice.tile_h - 1) * h.stride + (h.kernel - 1) * h.dilation + 1;
  const int64_t patch_w = (choice.tile_w - 1) * w.stride + (w.kernel - 1) * w.dilation + 1;
  const int64_t tile = int64_t{choice.tile_h} * choice.tile_w;
  const int64_t channel_blocks = ceil_div(problem.group_in(), sums.channels);
  const int64_t tap_blocks = ceil_div(w.kernel, sums.taps);
  const int64_t items = channel_blocks * tap_blocks * problem.group_out() * h.kernel;
  const int64_t parts = std::clamp<int64_t>(kWeightWarps / std::min<int64_t>(items, kWeightWarps),
                                            1, ceil_div(tile, 32));
  if (patch_h > kSharedFloats || patch_w > kSharedFloats || items > kSharedFloats ||
      problem.group_in() * tile + problem.group_out() * patch_h * patch_w +
              items * parts * sums.channels * sums.taps + 16 >
          kSharedFloats)
    return "a patch of " + text(patch_h) + " x " + text(patch_w) + " has no room";
  const int64_t tiles_h = ceil_div(h.in, choice.tile_h), tiles_w = ceil_div(w.in, choice.tile_w);
  const double pieces = double(problem.batch) * double(tiles_h) * double(tiles_w);
  if (pieces > double(kMostPieces)) return "more than " + text(kMostPieces) + " pieces";
  p.pieces = number(problem.batch * tiles_h * tiles_w);
  if (weight_bytes(problem) * p.pieces > kWorkspaceLimit) return "too many partial sums";
  if (double(p.pieces) * double(problem.groups) > INT32_MAX / 2) return "too many blocks";
  p.blocks = number(p.pieces * problem.groups);
  p.tile_h = choice.tile_h, p.tile_w = choice.tile_w;
  p.group_in = number(problem.group_in());
  p.group_out = number(problem.group_out());
  p.in_channels = number(problem.in_channels);
  const bool channels_last = problem.x_layout == Layout::nhwc;
  const int64_t of_x = problem.group_in() * tile, of_y = problem.group_out() * patch_h * patch_w;
  const double share = double(of_x) / double(of_x + of_y);
  p.x_threads = std::clamp(int(std::ceil(share * kWeightWarps)), 1, kWeightWarps - 1) * 32;
  set_patch(p.group_in, p.tile_h, p.tile_w, channels_last, p.x_threads, p.patch[0]);
  set_patch(p.group_out, patch_h, patch_w, channels_last, kWeightThreads - p.x_threads, p.patch[1]);
  p.patch[0].rows = number(h.in), p.patch[0].columns = number(w.in);
  p.patch[1].rows = number(h.out), p.patch[1].columns = number(w.out);
  p.first_h = number(-h.near_pad), p.first_w = number(-w.near_pad);
  p.patch[1].at = p.patch[0].count;
  p.sums_at = p.patch[0].count + p.patch[1].count;
  p.shared_bytes = number(4 * (p.sums_at + items * parts * sums.channels * sums.taps));
  p.step_h = number(h.stride), p.step_w = number(w.stride);
  p.dilation_h = number(h.dilation), p.dilation_w = number(w.dilation);
  p.kernel_h = number(h.kernel), p.kernel_w = number(w.kernel);
  p.items = number(items), p.parts = number(parts);
  p.elements = number(problem.group_in() * problem.group_out() * h.kernel * w.kernel);
  p.piece_floats = number(weight_bytes(problem) / 4);
  p.by_tile_w = FastDivide(p.tile_w);
  p.by_items = FastDivide(items);
  p.by_channel_blocks = FastDivide(channel_blocks);
  p.by_tap_blocks = FastDivide(tap_blocks);
  p.by_kernel_h = FastDivide(h.kernel);
  p.by_tiles_w = FastDivide(tiles_w);
  p.by_tiles_h = FastDivide(tiles_h);
  p.by_pieces = FastDivide(p.pieces);
  p.by_kernel_w = FastDivide(w.kernel);
  p.by_group_in = FastDivide(p.group_in);
  p.by_group_out = FastDivide(p.group_out);
  return {};
}

double predict_weight(const Problem& problem, const Device& device, const Choice& choice,
                      const WeightParams& p) {
  const Sums sums = kSums[choice.row];
  const double count = sums.channels * sums.taps, tile = double(p.tile_h) * p.tile_w;
  const double work = double(p.items) * p.parts;
  const double turns_of_work = std::ceil(work / kWeightWarps);
  const double pixels = std::ceil(tile / (32.0 * p.parts));
  const double instructions =
      kWeightWarps * kBlock + (bringing(p.patch[0]) + bringing(p.patch[1])) * kNumber +
      work * (pixels * (kPixel + sums.channels + sums.taps + count) + kItem + count * kLanes) +
      std::ceil(p.elements / 32.0) * (40 + 8 * p.parts);
  const double conflicts = double(gcd(p.step_w, 32));
  const double words = work * pixels * (sums.channels + sums.taps * conflicts);
  const double cycles = std::max(instructions / 4, words) / kUsed;
  const double resident =
      std::min<double>(kWeightBlocks, std::floor(device.smem_per_sm / (p.shared_bytes + 1024.)));
  const double turns = std::ceil(double(p.blocks) / device.sm_count);
  const double waves = std::ceil(turns / resident);
  const double fills = std::max(rounds(p.patch[0], p.x_threads, kWeightFill),
                                rounds(p.patch[1], kWeightThreads - p.x_threads, kWeightFill));
  const double waiting =
      waves * (fills * kRound + turns_of_work * (pixels * kPixelWait + 300) / kClock);
  const double busy = (element_size(problem.dtype) == 2 ? kHalves : kWords) *
                      std::max(turns * cycles / kClock, waiting);
  double moved = 0;
  for (const Patch& patch : p.patch)
    moved += p.blocks * sectors(patch.lines, patch.line, element_size(problem.dtype));
  const double partial = double(partial_bytes(problem, p.pieces));
  const double memory =
      std::max((tensor_bytes(problem) + partial) / kMemoryRate, moved) / device.copy_bytes_per_us;
  return kLaunch + std::max(busy, memory) + kBeside * std::min(busy, memory) +
         (p.pieces > 1 ? kSum + kPiecesTime * std::floor(p.pieces / kPieces) +
                             partial / device.copy_bytes_per_us
                       : 0);
}

WeightParams weight_params_of(const Problem& problem, const Plan& plan, const Args& args) {
  WeightParams p;
  shape_weight(problem, {plan.row, plan.detail[kTileH], plan.detail[kTileW], 0, 0}, p);
  set_tensor(args.x, p.patch[0]);
  set_tensor(args.y, p.patch[1]);
  p.weight = args.w.data;
  p.partials = p.pieces > 1 ? static_cast<float*>(args.workspace) : nullptr;
  for (int i = 0; i < 4; ++i) p.stride[i] = static_cast<int32_t>(args.w.stride[i]);
  return p;
}

}  // namespace convt2d::cuda::mite
